package apiserver

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCredentialsAreKeptAndRenewed(t *testing.T) {
	load := func(dir string) *credentials {
		t.Helper()
		c, err := loadCredentials(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !certificateUsable(c.ca, c.cert, c.key, time.Now()) {
			t.Error("the certificate is not usable")
		}
		return c
	}
	write := func(dir, name string, data []byte) {
		t.Helper()
		if err := writePrivate(filepath.Join(dir, name), data); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		spoil func(dir string, c *credentials)
		kept  bool
	}{
		"untouched":   {func(string, *credentials) {}, true},
		"key missing": {func(dir string, _ *credentials) { _ = os.Remove(filepath.Join(dir, "server.key")) }, false},
		"half written": {func(dir string, _ *credentials) {
			other := &credentials{}
			if err := other.mintCertificate(time.Now()); err != nil {
				t.Fatal(err)
			}
			write(dir, "ca.crt", other.ca)
		}, false},
		"about to expire": {func(dir string, _ *credentials) {
			old := &credentials{}
			if err := old.mintCertificate(time.Now().Add(24*time.Hour - certificateLife)); err != nil {
				t.Fatal(err)
			}
			write(dir, "ca.crt", old.ca)
			write(dir, "server.crt", old.cert)
			write(dir, "server.key", old.key)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			before := load(dir)
			tt.spoil(dir, before)
			after := load(dir)
			if after.token != before.token {
				t.Error("the token changed")
			}
			if kept := string(after.cert) == string(before.cert); kept != tt.kept {
				t.Errorf("kept the certificate: %t, want %t", kept, tt.kept)
			}
		})
	}
}

func TestSocketDirectories(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	short, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	spaced := filepath.Join(short, "a b")
	for dir, below := range map[string]bool{short: true, spaced: false, filepath.Join(short, longName): false} {
		got, err := privateSocketDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if (filepath.Dir(got) == dir) != below {
			t.Errorf("the sockets of %q are in %q", dir, got)
		}
		if again, err := privateSocketDir(dir); err != nil || again != got {
			t.Errorf("a second start of %q uses %q, the first %q: %v", dir, again, got, err)
		}
	}
	// A directory that others can write to is not taken.
	taken, err := privateSocketDir(spaced)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(taken, 0o777); err != nil {
		t.Fatal(err)
	}
	if got, err := privateSocketDir(spaced); err != nil || got == taken {
		t.Errorf("took over %q: %v", got, err)
	}
}

const longName = "a-name-so-long-that-a-socket-below-it-would-not-fit-into-an-address-of-the-kernel-which-is-about-a-hundred-bytes"
