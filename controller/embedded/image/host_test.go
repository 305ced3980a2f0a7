package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/agentbox/controller/embedded/runtime"
)

func TestHostImage(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	img, err := s.Ensure(t.Context(), Host+":idle", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := newStore(t, dir).Ensure(t.Context(), Host, "", nil)
	if err != nil || again.ID != img.ID || again.Tree != img.Tree {
		t.Errorf("the image differs from run to run: %+v, %+v, %v", img, again, err)
	}
	for _, secret := range []string{"etc/shadow", "etc/gshadow", "etc/ssh", "etc/ssl/private", "etc/sudoers", "etc/docker", "etc/apt", "etc/pip.conf", "etc/npmrc"} {
		if _, err := os.Lstat(filepath.Join(img.Tree, secret)); err == nil {
			t.Errorf("the image holds /%s", secret)
		}
	}
	for _, m := range img.Machine {
		if !strings.HasPrefix(m, "/usr") && !strings.HasPrefix(m, "/bin") && !strings.HasPrefix(m, "/sbin") && !strings.HasPrefix(m, "/lib") {
			t.Errorf("the image shows %s", m)
		}
	}
	if u, home, err := img.LookupUser(""); err != nil || u.UID != 0 || home != "/root" {
		t.Errorf("root is %+v in %q, %v", u, home, err)
	}
	if u, home, err := img.LookupUser(UserName); err != nil || u.UID != UserID || home != "/home/user" || len(u.Groups) != 1 || u.Groups[0] != 100 {
		t.Errorf("the user is %+v in %q, %v", u, home, err)
	}
}

func TestEnvdImage(t *testing.T) {
	dir := t.TempDir()
	envd := filepath.Join(dir, "envd")
	s, err := NewStore(filepath.Join(dir, "images"), runtime.IDs{Size: 1}, envd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ensure(t.Context(), Envd, "", nil); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("without the binary: %v", err)
	}
	if err := os.WriteFile(envd, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := s.Ensure(t.Context(), Envd, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := list(t, img.Tree); got != "envd=program" {
		t.Errorf("the tree is %q", got)
	}
}

func TestLookupUser(t *testing.T) {
	tree := t.TempDir()
	if err := os.Mkdir(filepath.Join(tree, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(tree, "etc", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("passwd", "root:x:0:0:root:/root:/bin/sh\nbroken\napp:x:10:20::/app:\nbad:x:many:1::/:\n")
	write("group", "app:x:20:\nextra:x:30:other,app\n")
	img := &Image{Tree: tree}
	for spec, want := range map[string]struct {
		uid, gid uint32
		home     string
		fails    bool
	}{
		"": {0, 0, "/root", false}, "app": {10, 20, "/app", false}, "10": {10, 20, "/app", false}, "99": {99, 0, "/", false},
		"app:extra": {10, 30, "/app", false}, "5:6": {5, 6, "/", false}, "absent": {fails: true}, "app:absent": {fails: true},
		"bad": {fails: true}, "-1": {fails: true},
	} {
		u, home, err := img.LookupUser(spec)
		if (err != nil) != want.fails {
			t.Errorf("%q: error %v", spec, err)
			continue
		}
		if err == nil && (u.UID != want.uid || u.GID != want.gid || home != want.home) {
			t.Errorf("%q is %+v in %q", spec, u, home)
		}
	}
	// A password file that leads out of the image is not read.
	if err := os.Remove(filepath.Join(tree, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(tree, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := img.LookupUser("root"); err == nil {
		t.Error("the machine's own users were used")
	}
}
