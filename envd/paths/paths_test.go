package paths

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	for _, test := range []struct{ path, workdir, want string }{
		{"", "", "/home/user"},
		{"", "/work", "/work"},
		{"", "work", "/home/user/work"},
		{"~", "/work", "/home/user"},
		{"~/a", "", "/home/user/a"},
		{"~other", "", "/home/user/~other"},
		{"a/b", "/work", "/home/user/a/b"},
		{"/a/./b/../c", "", "/a/c"},
		{"../../../etc", "", "/etc"},
		{"/../..", "", "/"},
		{"a\nb %2e é 猫", "", "/home/user/a\nb %2e é 猫"},
	} {
		got, err := Resolve(test.path, "/home/user", test.workdir)
		if err != nil || got != test.want {
			t.Errorf("Resolve(%q, workdir %q) = %q, %v; want %q", test.path, test.workdir, got, err, test.want)
		}
	}
	if _, err := Resolve("a\x00b", "/", ""); err == nil {
		t.Error("a NUL byte was accepted")
	}
}

func FuzzResolve(f *testing.F) {
	for _, path := range []string{"", "~", "~/x", "a", "/a/../..", "//", "~/../..", "a\x00"} {
		f.Add(path, "/home/user", "")
		f.Add(path, "", "relative")
	}
	f.Fuzz(func(t *testing.T, path, home, workdir string) {
		got, err := Resolve(path, home, workdir)
		if err != nil {
			return
		}
		if !filepath.IsAbs(got) || filepath.Clean(got) != got || !strings.ContainsRune(home+workdir, 0) && strings.ContainsRune(got, 0) {
			t.Errorf("Resolve(%q, %q, %q) = %q", path, home, workdir, got)
		}
	})
}
