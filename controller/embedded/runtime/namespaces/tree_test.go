package namespaces

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRemoveTree(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "kept")
	dir := filepath.Join(t.TempDir(), "tree")
	write(t, filepath.Join(dir, "a", "b", "file"), "x")
	write(t, filepath.Join(dir, ".removing-1", "file"), "a name of our own, used by the sandbox")
	write(t, filepath.Join(dir, "a", ".removing-2", "file"), "another")
	if err := os.Symlink(outside, filepath.Join(dir, "a", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "dirlink")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "a", "b"), 0); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is still there: %v", err)
	}
	if raw, err := os.ReadFile(outside); err != nil || string(raw) != "kept" {
		t.Errorf("a link was followed: %q, %v", raw, err)
	}
	if err := RemoveTree(dir); err != nil {
		t.Errorf("a tree that is not there: %v", err)
	}
	link := filepath.Join(filepath.Dir(dir), "link")
	if err := os.Symlink(filepath.Dir(outside), link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, outside} {
		if err := RemoveTree(name); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

// TestNamesInAgain lists a directory once more, as a second attempt to empty it does.
func TestNamesInAgain(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for want := range 3 {
		if names, err := namesIn(fd); err != nil || len(names) != want {
			t.Errorf("the directory holds %q, %v, want %d names", names, err, want)
		}
		write(t, filepath.Join(dir, strings.Repeat("x", want+1)), "")
	}
}

// TestRemoveDeepTree removes a tree far deeper than there are descriptors, and far longer than a path may be.
func TestRemoveDeepTree(t *testing.T) {
	const depth = 3000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: 256, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })

	dir := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range depth {
		if err := unix.Mkdirat(at, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		_ = unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	_ = unix.Close(at)
	if err := RemoveTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is still there: %v", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
