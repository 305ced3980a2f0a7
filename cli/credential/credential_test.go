package credential

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zalando/go-keyring"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
)

const key = "agbx_0123456789abcdef"

type fakeRing struct {
	kept map[string]string
	err  error
	cut  int           // keep only so many bytes
	hang chan struct{} // block until closed
}

func (f *fakeRing) Set(_, user, secret string) error {
	if f.hang != nil {
		<-f.hang
	}
	if f.err != nil {
		return f.err
	}
	if f.cut > 0 {
		secret = secret[:f.cut]
	}
	f.kept[user] = secret
	return nil
}

func (f *fakeRing) Get(_, user string) (string, error) {
	if v, ok := f.kept[user]; ok {
		return v, nil
	}
	return "", keyring.ErrNotFound
}

func (f *fakeRing) Delete(_, user string) error {
	if _, ok := f.kept[user]; !ok {
		return keyring.ErrNotFound
	}
	delete(f.kept, user)
	return nil
}

func store(t *testing.T, mode string, ring *fakeRing) *Store {
	t.Helper()
	if ring.kept == nil {
		ring.kept = map[string]string{}
	}
	return &Store{Path: filepath.Join(t.TempDir(), "abx", "credentials.json"), Mode: mode, Keyring: ring, Timeout: time.Minute}
}

func TestSaveLoadDelete(t *testing.T) {
	for mode, want := range map[string]string{"auto": InKeyring, "os": InKeyring, "file": InFile} {
		t.Run(mode, func(t *testing.T) {
			s := store(t, mode, &fakeRing{})
			c, err := s.Save(t.Context(), "prod", "https://a", key)
			if err != nil || c.Store != want {
				t.Fatalf("Save = %+v, %v; want %s", c, err, want)
			}
			if got, err := s.Load(t.Context(), "prod", c); err != nil || got != key {
				t.Errorf("Load = %q, %v", got, err)
			}
			elsewhere := &config.Credential{Store: c.Store, Address: "https://b"}
			if got, err := s.Load(t.Context(), "prod", elsewhere); err == nil {
				t.Errorf("the key was handed out for another address: %q", got)
			}
			if err := s.Delete(t.Context(), "prod", c); err != nil {
				t.Error(err)
			}
			if _, err := s.Load(t.Context(), "prod", c); clierr.From(err).Code != clierr.Unauthenticated {
				t.Errorf("after Delete: %v", err)
			}
			if err := s.Delete(t.Context(), "prod", c); err != nil {
				t.Errorf("second Delete: %v", err)
			}
		})
	}
}

func TestNoKeyringFallsBackToAPrivateFile(t *testing.T) {
	s := store(t, "auto", &fakeRing{err: errNoKeyring})
	c, err := s.Save(t.Context(), "prod", "https://a", key)
	if err != nil || c.Store != InFile {
		t.Fatalf("Save = %+v, %v", c, err)
	}
	info, err := os.Stat(s.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file mode %v, %v", info.Mode(), err)
	}
}

func TestAFailingKeyringIsNeverReplacedSilently(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, ring := range map[string]*fakeRing{
		"locked":    {err: errors.New("the collection is locked")},
		"truncates": {cut: 4},
		"hangs":     {hang: hang},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, "auto", ring)
			if ring.hang != nil {
				s.Timeout = time.Millisecond
			}
			if c, err := s.Save(t.Context(), "prod", "https://a", key); err == nil {
				t.Fatalf("saved to %s", c.Store)
			} else if strings.Contains(err.Error(), key) {
				t.Errorf("the error shows the key: %v", err)
			}
			if _, err := os.Stat(s.Path); err == nil {
				t.Error("a file was written")
			}
		})
	}
	s := store(t, "os", &fakeRing{err: errNoKeyring})
	if _, err := s.Save(t.Context(), "prod", "https://a", key); err == nil {
		t.Error("mode os fell back to a file")
	}
}

func TestCheck(t *testing.T) {
	for k, ok := range map[string]bool{key: true, "": false, "a b": false, "a\n": false, "ключ": false, strings.Repeat("x", 2561): false} {
		if err := Check(k); (err == nil) != ok {
			t.Errorf("Check(%.20q) = %v", k, err)
		}
	}
}

func TestMalformedFileIsKept(t *testing.T) {
	s := store(t, "file", &fakeRing{})
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path, []byte("{oops"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(context.Background(), "prod", "https://a", key); err == nil {
		t.Error("a malformed file was written over")
	}
	if data, _ := os.ReadFile(s.Path); string(data) != "{oops" {
		t.Errorf("file is now %q", data)
	}
}
