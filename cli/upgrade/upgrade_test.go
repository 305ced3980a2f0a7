package upgrade

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/agentbox/cli/clierr"
)

// release serves a signed release; a test spoils it afterwards.
type fixture struct {
	files map[string][]byte
	url   string
	key   string // PEM file
	abx   string // the installed program
}

const oldProgram = "the old abx"

func newFixture(t *testing.T, version string) *fixture {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &fixture{key: filepath.Join(dir, "key.pem"), abx: filepath.Join(dir, "bin", "abx")}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	write(t, f.abx, oldProgram)
	f.files = map[string][]byte{"VERSION": []byte(version + "\n"), binaryName(): []byte("the new abx")}
	var sums strings.Builder
	for _, name := range []string{"VERSION", binaryName()} {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.files[name]), name)
	}
	f.files["SHA256SUMS"] = []byte(sums.String())
	digest := sha256.Sum256(f.files["SHA256SUMS"])
	if f.files["SHA256SUMS.sig"], err = ecdsa.SignASN1(rand.Reader, private, digest[:]); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		body, ok := f.files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL + "/cli/latest"
	return f
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) run(t *testing.T, r Request) (Result, error) {
	t.Helper()
	source, err := NewSource(func(name string) string {
		return map[string]string{"AGBX_CLI_BASE": f.url, "AGBX_CLI_PUBLIC_KEY": f.key}[name]
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Upgrade(context.Background(), source, f.abx, r)
}

func (f *fixture) program(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(f.abx)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(f.abx))
	if err != nil || len(entries) != 1 {
		t.Errorf("the program's folder holds %v (%v), want the program only", entries, err)
	}
	return string(raw)
}

func TestUpgradeReplacesTheProgram(t *testing.T) {
	f := newFixture(t, "v1.3.0")
	got, err := f.run(t, Request{Current: "v1.2.9"})
	if err != nil || got.Installed != f.abx || f.program(t) != "the new abx" {
		t.Fatalf("%+v, %v, program %q", got, err, f.program(t))
	}
	if info, err := os.Stat(f.abx); err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
}

func TestVersionsDecide(t *testing.T) {
	for _, c := range []struct {
		name      string
		request   Request
		installed bool
		code      string
	}{
		{"same version downloads nothing", Request{Current: "v1.3.0"}, false, ""},
		{"same version by force", Request{Current: "v1.3.0", Reinstall: true}, true, ""},
		{"check installs nothing", Request{Current: "v1.2.0", Check: true}, false, ""},
		{"downgrade is refused", Request{Current: "v1.10.0"}, false, clierr.Conflict},
		{"downgrade when asked", Request{Current: "v1.10.0", AllowDowngrade: true}, true, ""},
		{"pinned", Request{Current: "v1.2.0", Version: "v1.3.0"}, true, ""},
		{"pinned, another is there", Request{Current: "v1.2.0", Version: "v1.3.1"}, false, clierr.BadResponse},
		{"pinned nonsense", Request{Current: "v1.2.0", Version: "latest"}, false, clierr.InvalidValue},
		{"source build", Request{Current: "dev"}, false, clierr.Unsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, "v1.3.0")
			got, err := f.run(t, c.request)
			if code := codeOf(err); code != c.code || (got.Installed != "") != c.installed {
				t.Fatalf("installed %q, code %q (%v)", got.Installed, code, err)
			}
			if want := map[bool]string{true: "the new abx", false: oldProgram}[c.installed]; f.program(t) != want {
				t.Fatalf("program is %q", f.program(t))
			}
		})
	}
}

func TestNothingUnverifiedIsInstalled(t *testing.T) {
	other := newFixture(t, "v1.3.0")
	for _, c := range []struct {
		name  string
		spoil func(*fixture)
		code  string
	}{
		{"tampered binary", func(f *fixture) { f.files[binaryName()] = []byte("evil") }, clierr.BadResponse},
		{"tampered list", func(f *fixture) { f.files["SHA256SUMS"] = append(f.files["SHA256SUMS"], '\n') }, clierr.BadResponse},
		{"another's signature", func(f *fixture) { f.files["SHA256SUMS.sig"] = other.files["SHA256SUMS.sig"] }, clierr.BadResponse},
		{"another's whole release", func(f *fixture) { f.files = other.files }, clierr.BadResponse},
		{"no signature", func(f *fixture) { delete(f.files, "SHA256SUMS.sig") }, clierr.NotFound},
		{"no list", func(f *fixture) { delete(f.files, "SHA256SUMS") }, clierr.NotFound},
		{"no binary", func(f *fixture) { delete(f.files, binaryName()) }, clierr.NotFound},
		{"empty version", func(f *fixture) { f.files["VERSION"] = nil }, clierr.BadResponse},
		{"offline", func(f *fixture) { f.url = "http://127.0.0.1:1/latest" }, clierr.Unreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, "v1.3.0")
			c.spoil(f)
			_, err := f.run(t, Request{Current: "v1.2.0"})
			if code := codeOf(err); code != c.code {
				t.Errorf("code %q (%v), want %q", code, err, c.code)
			}
			if f.program(t) != oldProgram {
				t.Errorf("the program was touched: %q", f.program(t))
			}
		})
	}
}

func codeOf(err error) string {
	var e *clierr.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestNothingIsAssumed(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no address": {},
		"no key":     {"AGBX_CLI_BASE": "http://127.0.0.1:1"},
	} {
		_, err := NewSource(func(k string) string { return env[k] }, nil)
		if codeOf(err) != clierr.NotConfigured {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseSums(f *testing.F) {
	f.Add([]byte("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  VERSION\n"))
	f.Add([]byte("x  y\n"))
	f.Add([]byte(" \n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		sums, err := parseSums(raw)
		for name, digest := range sums {
			if err == nil && (name == "" || len(digest) != 64) {
				t.Fatalf("accepted %q %q", name, digest)
			}
		}
	})
}
