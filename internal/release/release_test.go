package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func privateKey(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "release-key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// abxHere is the one program that the tests build.
var abxHere = target{"abx", runtime.GOOS, runtime.GOARCH}

// TestRelease builds one commit in two places, compares, and takes the release the whole way: openssl, install.sh, abx
// upgrade.
func TestRelease(t *testing.T) {
	var served atomic.Pointer[string]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(*served.Load(), filepath.Base(r.URL.Path)))
	}))
	defer server.Close()
	base := server.URL + "/abx/latest"
	key := privateKey(t, newKey(t, elliptic.P256()))

	release := func(checkout, version string) string {
		t.Helper()
		t.Chdir(checkout)
		out := filepath.Join(t.TempDir(), "dist")
		if err := run(os.Stdout, []target{abxHere}, version, out, key, base); err != nil {
			t.Fatal(err)
		}
		return out
	}
	here, there := checkout(t, "a"), checkout(t, "a much longer path of another person")
	first := release(here, "v1.2.3")
	t.Setenv("TZ", "Pacific/Auckland")
	t.Setenv("USER", "somebody")
	t.Setenv("LANG", "de_DE.UTF-8")
	sameBytes(t, first, release(there, "v1.2.3"))
	second := release(here, "v1.2.4")

	served.Store(&first)
	opensslAgrees(t, first)
	sbomIsTrue(t, filepath.Join(first, "sbom.cdx.json"))
	isPacked(t, filepath.Join(first, "skills.tar.gz"), "skills/dist")
	isPacked(t, filepath.Join(first, "deploy.tar.gz"), "deploy")

	home := t.TempDir()
	installed := filepath.Join(home, ".local", "bin", "abx")
	command := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	command("sh", filepath.Join(first, "install.sh"))
	if got := command(installed, "version"); !strings.Contains(got, "v1.2.3") {
		t.Errorf("the installed abx says %q", got)
	}
	if skills, _ := filepath.Glob(filepath.Join(home, ".agents", "skills", "abx-*", "SKILL.md")); len(skills) != 9 {
		t.Errorf("%d skills are installed", len(skills))
	}
	if got := command(installed, "upgrade"); !strings.Contains(got, "v1.2.3 is the latest") {
		t.Errorf("abx upgrade says %q", got)
	}
	served.Store(&second)
	if got := command(installed, "upgrade"); !strings.Contains(got, "from v1.2.3 to v1.2.4") {
		t.Errorf("abx upgrade says %q", got)
	}
	if got := command(installed, "version"); !strings.Contains(got, "v1.2.4") {
		t.Errorf("the upgraded abx says %q", got)
	}
}

func sameBytes(t *testing.T, a, b string) {
	t.Helper()
	names := func(dir string) (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	if !slices.Equal(names(a), names(b)) {
		t.Fatalf("one build has %v, the other %v", names(a), names(b))
	}
	for _, name := range names(a) {
		one, err := os.ReadFile(filepath.Join(a, name))
		other, err2 := os.ReadFile(filepath.Join(b, name))
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, other) {
			t.Errorf("%s differs between two builds of one commit", name)
		}
	}
}

func opensslAgrees(t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Log("openssl is not on this machine; install.sh, which needs it, was not held to the signature")
		return
	}
	script, err := os.ReadFile(filepath.Join(dir, "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(script), "release_key='")
	public, _, ok := strings.Cut(rest, "'\n")
	if !ok {
		t.Fatal("install.sh carries no key")
	}
	file := filepath.Join(t.TempDir(), "release.pem")
	if err := os.WriteFile(file, []byte(public), 0o644); err != nil {
		t.Fatal(err)
	}
	sums := filepath.Join(dir, "SHA256SUMS")
	if out, err := exec.Command("openssl", "dgst", "-sha256", "-verify", file, "-signature", sums+".sig", sums).CombinedOutput(); err != nil {
		t.Errorf("openssl: %v\n%s", err, out)
	}
}

func sbomIsTrue(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat   string
		SpecVersion string
		Metadata    struct{ Component component }
		Components  []component
	}
	if err := json.Unmarshal(raw, &bom); err != nil || bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != "v1.2.3" {
		t.Fatalf("%+v, %v", bom.Metadata, err)
	}
	have := map[string]string{}
	for _, c := range bom.Components {
		if have[c.Name] != "" {
			t.Errorf("%s is listed twice", c.Name)
		}
		have[c.Name] = c.Version
	}
	mod, err := os.ReadFile("go.mod") // the working directory is a checkout
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"github.com/spf13/cobra", "github.com/itchyny/gojq"} {
		if have[name] == "" || !strings.Contains(string(mod), name+" "+have[name]+"\n") {
			t.Errorf("the SBOM says %s %q, which go.mod does not", name, have[name])
		}
	}
	if have["std"] == "" || have["k8s.io/client-go"] != "" {
		t.Errorf("std %q, client-go %q: abx consists of the first and not of the second", have["std"], have["k8s.io/client-go"])
	}
}

// isPacked: the archive holds the files of a folder and nothing about who packed them when.
func isPacked(t *testing.T, path, dir string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	left, err := filesBelow(dir)
	if err != nil {
		t.Fatal(err)
	}
	for packed := tar.NewReader(zip); ; {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(packed)
		want, err2 := os.ReadFile(filepath.Join(dir, header.Name))
		if err = errors.Join(err, err2); err != nil || !bytes.Equal(raw, want) {
			t.Errorf("%s: %v, or it differs", header.Name, err)
		}
		if header.ModTime.Unix() != 0 || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s tells when and by whom it was packed: %+v", header.Name, header)
		}
		left = slices.DeleteFunc(left, func(name string) bool { return name == header.Name })
	}
	if len(left) > 0 {
		t.Errorf("%s lacks %v", path, left)
	}
}

func TestKeysThatCannotSign(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	nonsense := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(nonsense, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		privateKey(t, newKey(t, elliptic.P384())): "want curve P-256, got P-384",
		privateKey(t, rsaKey):                     "want an ECDSA P-256 private key",
		nonsense:                                  "no PEM block",
		filepath.Join(t.TempDir(), "nowhere"):     "no such file",
	} {
		if _, _, err := loadKey(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(io.Discard, nil, "", t.TempDir(), "", ""); err == nil || !strings.Contains(err.Error(), "-version is required") {
		t.Error(err)
	}
	if err := run(io.Discard, nil, "v1.0.0", full, "", ""); err == nil || !strings.Contains(err.Error(), "make clean") {
		t.Error(err)
	}
	if err := writeInstaller("../../install.sh", filepath.Join(t.TempDir(), "i"), "http://x/'; rm -rf /", ""); err == nil {
		t.Error("an address with a quote was written into a shell script")
	}
}

// TestTheLastLine: whoever made a release learns where it is and whether it is signed.
func TestTheLastLine(t *testing.T) {
	key := privateKey(t, newKey(t, elliptic.P256()))
	t.Chdir(filepath.Join("..", ".."))
	for file, want := range map[string]string{"": "UNSIGNED: install.sh and abx upgrade refuse it", key: "signed with " + key} {
		out := filepath.Join(t.TempDir(), "dist")
		var said bytes.Buffer
		if err := run(&said, nil, "v1.2.3", out, file, ""); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, "release v1.2.3 is in "+out+"/, ") || !strings.Contains(last, want) {
			t.Errorf("the last line is %q", last)
		}
	}
}

// TestTargets: the page about releases lists what is built.
func TestTargets(t *testing.T) {
	page, err := os.ReadFile("../../docs/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range targets() {
		names = append(names, x.name())
		if x.command != "abx" && !strings.Contains(string(page), "`"+x.command+"-linux-<arch>`") {
			t.Errorf("docs/releases.md does not name %s", x.command)
		}
	}
	for _, want := range []string{"abx-darwin-arm64", "abx-linux-amd64", "abx-windows-amd64.exe", "controller-linux-arm64", "envd-linux-amd64", "sandbox-init-linux-arm64"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not built: %v", want, names)
		}
	}
}
