package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime"
)

func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content = h.Linkname // tests put the content here
			h.Linkname, h.Size = "", int64(len(content))
		}
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: content}
}
func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name} }
func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}
func hard(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}

// unpack applies layers to a directory that lies beside a file that must stay as it is.
func unpack(t testing.TB, layers ...[]byte) (tree string, err error) {
	t.Helper()
	base := t.TempDir()
	tree = filepath.Join(base, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(base, "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := newUnpacker(tree, runtime.IDs{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for _, l := range layers {
		if err = u.layer(t.Context(), bytes.NewReader(l)); err != nil {
			break
		}
	}
	if err == nil {
		err = u.finish()
	}
	if data, readErr := os.ReadFile(outside); readErr != nil || string(data) != "untouched" {
		t.Fatalf("a file outside of the tree was touched: %q, %v", data, readErr)
	}
	entries, readErr := os.ReadDir(base)
	if readErr != nil || len(entries) != 2 {
		t.Fatalf("something was made outside of the tree: %v, %v", entries, readErr)
	}
	return tree, err
}

// list shows a tree as "path" or "path=content" or "path->target".
func list(t testing.TB, tree string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == tree {
			return err
		}
		name, _ := filepath.Rel(tree, p)
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			name += "->" + to
		case d.Type().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			name += "=" + string(data)
		}
		out = append(out, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

func TestUnpack(t *testing.T) {
	for name, test := range map[string]struct {
		layers [][]tar.Header
		want   string
	}{
		"plain":                {[][]tar.Header{{dir("a/"), file("a/f", "1"), link("l", "a/f"), hard("h", "a/f")}}, "a a/f=1 h=1 l->a/f"},
		"no parents":           {[][]tar.Header{{file("a/b/c", "1")}}, "a a/b a/b/c=1"},
		"dot names":            {[][]tar.Header{{dir("./"), file("./a", "1")}}, "a=1"},
		"absolute names":       {[][]tar.Header{{file("/a", "1"), hard("/b", "/a")}}, "a=1 b=1"},
		"replaced file":        {[][]tar.Header{{file("a", "1")}, {file("a", "2")}}, "a=2"},
		"file by directory":    {[][]tar.Header{{file("a", "1")}, {dir("a"), file("a/b", "2")}}, "a a/b=2"},
		"directory by file":    {[][]tar.Header{{dir("a"), file("a/b", "2")}, {file("a", "1")}}, "a=1"},
		"directory by link":    {[][]tar.Header{{file("a/b", "2"), dir("c")}, {link("a", "c")}}, "a->c c"},
		"hard link unshared":   {[][]tar.Header{{file("a", "1"), hard("b", "a")}, {file("b", "2")}}, "a=1 b=2"},
		"whiteout":             {[][]tar.Header{{file("a/x", "1"), file("a/y", "2")}, {file("a/.wh.x", "")}}, "a a/y=2"},
		"whiteout directory":   {[][]tar.Header{{file("a/b/c", "1")}, {file("a/.wh.b", "")}}, "a"},
		"whiteout own":         {[][]tar.Header{{file("a/x", "1")}, {file("a/x", "2"), file("a/.wh.x", "")}}, "a a/x=2"},
		"opaque":               {[][]tar.Header{{file("a/x", "1"), file("a/d/y", "2")}, {dir("a"), file("a/.wh..wh..opq", ""), file("a/z", "3")}}, "a a/z=3"},
		"opaque last":          {[][]tar.Header{{file("a/x", "1"), file("a/d/y", "2")}, {file("a/d/n", "4"), file("a/z", "3"), file("a/.wh..wh..opq", "")}}, "a a/d a/d/n=4 a/z=3"},
		"through a link":       {[][]tar.Header{{dir("usr/lib"), link("lib", "usr/lib")}, {file("lib/x", "1")}}, "lib->usr/lib usr usr/lib usr/lib/x=1"},
		"through absolute":     {[][]tar.Header{{dir("run"), dir("var"), link("var/run", "/run")}, {file("var/run/x", "1")}}, "run run/x=1 var var/run->/run"},
		"global header":        {[][]tar.Header{{file("a", "1")}, {{Typeflag: tar.TypeXGlobalHeader, Name: "a", PAXRecords: map[string]string{"comment": "c"}}}}, "a=1"},
		"devices in dev":       {[][]tar.Header{{dir("dev"), {Typeflag: tar.TypeChar, Name: "dev/null"}, {Typeflag: tar.TypeFifo, Name: "dev/p"}}}, "dev"},
		"closed directory":     {[][]tar.Header{{{Typeflag: tar.TypeDir, Name: "a", Mode: 0o555}, file("a/b", "1")}}, "a a/b=1"},
		"link outside":         {[][]tar.Header{{link("out", "../../outside"), link("abs", "/etc/passwd")}}, "abs->/etc/passwd out->../../outside"},
		"through link outside": {[][]tar.Header{{dir("etc"), link("up", "../.."), file("up/outside", "x")}}, "etc outside=x up->../.."},
	} {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range test.layers {
				layers = append(layers, archive(t, l...))
			}
			tree, err := unpack(t, layers...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { openDirs(tree) })
			if got := list(t, tree); got != test.want {
				t.Errorf("the tree is %q, want %q", got, test.want)
			}
		})
	}
}

// openDirs lets an ordinary user remove a tree with closed directories.
func openDirs(tree string) {
	_ = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	})
}

func TestUnpackRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		layer []tar.Header
		says  string
	}{
		"parent":               {[]tar.Header{file("../outside", "x")}, ".."},
		"parent inside":        {[]tar.Header{file("a/../../outside", "x")}, ".."},
		"hard link outside":    {[]tar.Header{hard("a", "../outside")}, ".."},
		"hard link via link":   {[]tar.Header{link("up", "../.."), hard("a", "up/outside")}, "outside"},
		"hard link to nothing": {[]tar.Header{hard("a", "b")}, "no such file"},
		"device":               {[]tar.Header{{Typeflag: tar.TypeBlock, Name: "disk"}}, "device"},
		"pipe":                 {[]tar.Header{{Typeflag: tar.TypeFifo, Name: "etc/passwd"}}, "pipes"},
		"empty whiteout":       {[]tar.Header{file("a/.wh.", "")}, "whiteout"},
		"whiteout of parent":   {[]tar.Header{file("a/.wh...", "")}, "whiteout"},
		"dangling parent":      {[]tar.Header{link("a", "/nowhere"), file("a/b", "")}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := unpack(t, archive(t, test.layer...))
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, want one about %q", err, test.says)
			}
		})
	}
}

func TestUnpackOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can give files to other users")
	}
	tree := t.TempDir()
	u, err := newUnpacker(tree, runtime.IDs{Base: 100_000, Size: 65_536})
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	suid := tar.Header{Typeflag: tar.TypeReg, Name: "d/suid", Mode: 0o4755, Uid: 1000, Gid: 5}
	if err := u.layer(t.Context(), bytes.NewReader(archive(t, suid))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]uint32{".": {100_000, 100_000}, "d": {100_000, 100_000}, "d/suid": {101_000, 100_005}} {
		if got := owner(t, filepath.Join(tree, name)); got != want {
			t.Errorf("%s belongs to %v, want %v", name, got, want)
		}
	}
	if st, err := os.Stat(filepath.Join(tree, "d/suid")); err != nil || st.Mode() != fs.ModeSetuid|0o755 {
		t.Errorf("the mode is %v, %v", st.Mode(), err)
	}
	far := tar.Header{Typeflag: tar.TypeReg, Name: "far", Uid: 70_000}
	if err := u.layer(t.Context(), bytes.NewReader(archive(t, far))); err == nil {
		t.Error("an owner outside of the sandbox's users is accepted")
	}
}

// TestUnpackLeavesRoom unpacks more than the disk holds.
func TestUnpackLeavesRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can mount a small file system")
	}
	tree := t.TempDir()
	if err := unix.Mount("tmpfs", tree, "tmpfs", 0, "size=160m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(tree, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	u, err := newUnpacker(tree, runtime.IDs{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	content := strings.Repeat("0", 100<<20)
	if err := u.layer(t.Context(), bytes.NewReader(archive(t, file("fits", content)))); err != nil {
		t.Fatal(err)
	}
	err = u.layer(t.Context(), bytes.NewReader(archive(t, file("large", content))))
	if err == nil || !strings.Contains(err.Error(), "16 MB are kept") {
		t.Errorf("the error is %v, want one about the room", err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(tree, &s); err != nil || s.Bavail == 0 {
		t.Errorf("the disk is full: %v", err)
	}
}

// FuzzUnpack feeds damaged and hostile archives: nothing may be written outside, and nothing may hang or panic.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, file("a", "1"), link("b", "../.."), file("b/c", "2"), hard("d", "a"), file(".wh.a", "")))
	f.Add(archive(f, dir("x"), link("x/y", "/"), file("x/y/x/y/z", "3"), file("x/.wh..wh..opq", "")))
	f.Add(archive(f, dir("a"), hard("a/b", "/a/../outside"), tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o111}, file("c", "1")))
	f.Add(archive(f, file("a/b", "1"), link("a", "b"), file("a/.wh.b", ""), file(strings.Repeat("long/", 60)+"name", "2"), hard("a", "a")))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}}, tar.Header{
		Typeflag: tar.TypeReg, Name: "s", Linkname: "1", Uid: -1, Mode: 0o7777, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y"},
	}))
	f.Add([]byte("no archive at all"))
	f.Fuzz(func(t *testing.T, layer []byte) {
		tree, err := unpack(t, layer)
		var pathErr *fs.PathError
		if err != nil && errors.As(err, &pathErr) && strings.Contains(pathErr.Path, "outside") {
			t.Errorf("went outside: %v", err)
		}
		_ = tree
	})
}
