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
		{"pinned without the v", Request{Current: "v1.2.0", Version: "1.3.0"}, false, clierr.InvalidValue},
		{"source build", Request{Current: "dev"}, false, clierr.Unsupported},
		{"source build after a tag", Request{Current: "v1.3.0-4-g98732e0"}, false, clierr.Unsupported},
		{"changed source build of a tag", Request{Current: "v1.2.0-dirty"}, false, clierr.Unsupported},
		{"changed source build after a tag", Request{Current: "v1.2.0-rc.1-4-g98732e0-dirty", Reinstall: true}, false, clierr.Unsupported},
		{"pre-release", Request{Current: "v1.3.0-rc.1"}, true, ""},
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
		{"no signature", func(f *fixture) { delete(f.files, "SHA256SUMS.sig") }, clierr.BadResponse},
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

// command runs `abx upgrade` as the program does and returns what it prints.
func command(t *testing.T, current string, env map[string]string, args ...string) (string, error) {
	t.Helper()
	cmd := New(CommandOptions{Current: current, Getenv: func(k string) string { return env[k] }})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

// told is everything that an error says to a person.
func told(err error) string {
	var out strings.Builder
	if err != nil {
		clierr.Print(&out, clierr.From(err), false)
	}
	return out.String()
}

func TestItSaysWhatIsTrue(t *testing.T) {
	for _, c := range []struct {
		name    string
		request Request
		want    string
	}{
		{"latest", Request{Current: "v1.3.0"}, "v1.3.0 is the latest\n"},
		{"the pinned one, which need not be the latest", Request{Current: "v1.3.0", Version: "v1.3.0"}, "this is v1.3.0 already\n"},
		{"a look at the pinned one", Request{Current: "v1.3.0", Version: "v1.3.0", Check: true}, "this is v1.3.0 already\n"},
		{"newer", Request{Current: "v1.2.0", Check: true}, "v1.3.0 is available, this is v1.2.0\nhint: abx upgrade\n"},
		{"pinned newer", Request{Current: "v1.2.0", Version: "v1.3.0", Check: true}, "hint: abx upgrade --version v1.3.0\n"},
		{"older", Request{Current: "v1.10.0", Check: true}, "the release is v1.3.0, this is v1.10.0\n"},
		{"upgrade", Request{Current: "v1.2.0"}, "upgraded PATH from v1.2.0 to v1.3.0\n"},
		{"again", Request{Current: "v1.3.0", Reinstall: true}, "installed v1.3.0 again: PATH\n"},
		{"back", Request{Current: "v1.10.0", AllowDowngrade: true}, "downgraded PATH from v1.10.0 to v1.3.0\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, "v1.3.0")
			result, err := f.run(t, c.request)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			Print(&out, result, c.request)
			if got := strings.ReplaceAll(out.String(), f.abx, "PATH"); !strings.Contains(got, c.want) {
				t.Errorf("it said %q, want %q", got, c.want)
			}
		})
	}
}

// A build from source is told so at once, not asked first for an address and a key that would not help.
func TestSourceBuildIsRefusedFirst(t *testing.T) {
	for _, current := range []string{"dev", "98732e0", "v1.2.3-4-g98732e0", "v1.2.3-dirty"} {
		_, err := command(t, current, nil, "--check")
		if codeOf(err) != clierr.Unsupported || !strings.Contains(told(err), "build from source ("+current+")") {
			t.Errorf("%s: %s", current, told(err))
		}
	}
	_, err := command(t, "v1.2.0", nil, "--version", "1.2.3")
	if got := told(err); !strings.Contains(got, "did you mean v1.2.3?") {
		t.Errorf("it said %s", got)
	}
}

func TestUnsignedReleaseIsCalledUnsigned(t *testing.T) {
	f := newFixture(t, "v1.3.0")
	delete(f.files, "SHA256SUMS.sig")
	_, err := f.run(t, Request{Current: "v1.2.0"})
	got := told(err)
	for _, want := range []string{"is not signed", "ask whoever publishes it", "AGBX_INSECURE_SKIP_SIGNATURE=1", "the old abx is untouched"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q: %s", want, got)
		}
	}
}

func TestWrongKeyFileIsNamed(t *testing.T) {
	dir := t.TempDir()
	nonsense, absent := filepath.Join(dir, "nonsense"), filepath.Join(dir, "absent")
	write(t, nonsense, "root:x:0:0\n")
	for path, want := range map[string]string{nonsense: "no PEM block", absent: "no such file"} {
		_, err := command(t, "v1.2.0", map[string]string{"AGBX_CLI_BASE": "http://127.0.0.1:1", "AGBX_CLI_PUBLIC_KEY": path})
		got := told(err)
		for _, want := range []string{"AGBX_CLI_PUBLIC_KEY=" + path, want, "BEGIN PUBLIC KEY"} {
			if codeOf(err) != clierr.InvalidValue || !strings.Contains(got, want) {
				t.Errorf("it lacks %q: %s", want, got)
			}
		}
		if strings.Count(got, path) != 1 {
			t.Errorf("it names the file more than once: %s", got)
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
