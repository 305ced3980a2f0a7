package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The user that sandboxes of the built-in image run as.
const (
	UserName = "user"
	UserID   = 1000
)

// machineDirs are the directories with the machine's programs. One that is a link on this machine becomes the same
// link, one that is a directory is shown read-only.
var machineDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// etcAllowed are the parts of /etc that programs need and that hold no secret. Everything else stays out: password
// hashes, host keys, and configuration of package managers, which often holds credentials.
var etcAllowed = []string{
	"alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gai.conf",
	"host.conf", "inputrc", "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf",
	"localtime", "magic", "magic.mime", "mime.types", "networks", "os-release", "perl", "pki/ca-trust", "pki/tls/cert.pem",
	"pki/tls/certs", "profile", "profile.d", "protocols", "python3", "python3.*", "R", "redhat-release", "rpc",
	"services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xattr.conf",
}

// maxEtcFile bounds one copied file; the largest of a normal machine is the linker's cache.
const maxEtcFile = 4 << 20

var hostFiles = map[string]string{
	"etc/passwd": `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
user:x:1000:1000:user:/home/user:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`,
	"etc/group":         "root:x:0:\ndaemon:x:1:\ntty:x:5:\nusers:x:100:user\nuser:x:1000:\nnogroup:x:65534:\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
	"etc/fstab":         "",
}

var hostDirs = []struct {
	path string
	mode os.FileMode
	user bool
}{
	{"dev", 0o755, false}, {"etc", 0o755, false}, {"home", 0o755, false}, {"home/user", 0o755, true},
	{"media", 0o755, false}, {"mnt", 0o755, false}, {"opt", 0o755, false}, {"proc", 0o555, false},
	{"root", 0o700, false}, {"run", 0o755, false}, {"run/lock", 0o777 | os.ModeSticky, false}, {"srv", 0o755, false},
	{"sys", 0o555, false}, {"tmp", 0o777 | os.ModeSticky, false}, {"var", 0o755, false}, {"var/cache", 0o755, false},
	{"var/lib", 0o755, false}, {"var/log", 0o755, false}, {"var/spool", 0o755, false},
	{"var/tmp", 0o777 | os.ModeSticky, false},
}

// buildHost makes the tree of the built-in host image, unless the last one was made of the same files.
func (s *Store) buildHost() (*Image, error) {
	stamp, machine, err := hostStamp()
	if err != nil {
		return nil, err
	}
	record := filepath.Join(s.dir, fmt.Sprintf("host-%s-%d", stamp, s.ids.Base))
	if sum, err := os.ReadFile(record); err == nil {
		tree := filepath.Join(s.dir, "host-tree-"+string(sum))
		if _, err := os.Stat(tree); err == nil {
			return hostImage(string(sum), tree, machine), nil
		}
	}
	tmp, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	b := &treeBuilder{root: tmp, ids: s.ids, sum: sha256.New()}
	if err := b.host(); err != nil {
		return nil, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, err
	}
	sum := hex.EncodeToString(b.sum.Sum(nil))
	final := filepath.Join(s.dir, "host-tree-"+sum)
	if err := s.adopt(tmp, final); err != nil {
		return nil, err
	}
	return hostImage(sum, final, machine), writeFile(record, []byte(sum))
}

// hostStamp sums up, without reading them, the files that the host image is made of, and lists what is shown of the
// machine beside them.
func hostStamp() (stamp string, machine []string, err error) {
	sum := sha256.New()
	fmt.Fprintln(sum, hostDirs, hostFiles, etcAllowed)
	note := func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // what cannot be read is not copied either
		}
		st, err := d.Info()
		if err == nil {
			fmt.Fprintln(sum, path, st.Mode(), st.Size(), st.ModTime().UnixNano())
		}
		return nil
	}
	for _, d := range machineDirs {
		st, err := os.Lstat(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		fmt.Fprintln(sum, d, st.Mode())
		if st.Mode()&fs.ModeSymlink == 0 {
			machine = append(machine, d)
		}
	}
	for _, pattern := range append([]string{"skel"}, etcAllowed...) {
		matches, err := filepath.Glob("/etc/" + pattern)
		if err != nil {
			return "", nil, err
		}
		for _, m := range matches {
			if err := filepath.WalkDir(m, note); err != nil {
				return "", nil, err
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), machine, nil
}

func hostImage(sum, tree string, machine []string) *Image {
	return &Image{
		ID: "sha256:" + sum, Tree: tree, Machine: machine,
		Config: Config{
			Cmd:        []string{"/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"},
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"},
			WorkingDir: "/home/" + UserName,
			User:       UserName,
		},
	}
}

func (b *treeBuilder) host() error {
	if err := b.dir(".", 0o755, 0); err != nil {
		return err
	}
	for _, d := range hostDirs {
		id := 0
		if d.user {
			id = UserID
		}
		if err := b.dir(d.path, d.mode, id); err != nil {
			return err
		}
	}
	for _, d := range machineDirs {
		st, err := os.Lstat(d)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(d)
			if err != nil {
				return err
			}
			if err := b.link(d[1:], to); err != nil {
				return err
			}
		default:
			if err := b.dir(d[1:], 0o755, 0); err != nil {
				return err
			}
		}
	}
	if err := b.link("var/run", "/run"); err != nil {
		return err
	}
	if err := b.link("etc/mtab", "/proc/mounts"); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(hostFiles)) {
		if err := b.file(path, strings.NewReader(hostFiles[path]), 0o644, 0); err != nil {
			return err
		}
	}
	for _, pattern := range etcAllowed {
		matches, err := filepath.Glob("/etc/" + pattern)
		if err != nil {
			return err
		}
		for _, m := range matches {
			if err := b.copyTree(m, m[1:], 0); err != nil {
				return err
			}
		}
	}
	// A shell looks the same as on the machine.
	for _, f := range []string{".bashrc", ".profile", ".bash_logout"} {
		if err := b.copyTree("/etc/skel/"+f, "home/user/"+f, UserID); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// buildEnvd makes the tree of the built-in envd image.
func (s *Store) buildEnvd() (*Image, error) {
	tmp, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	f, err := os.Open(s.envd)
	if err != nil {
		return nil, fmt.Errorf("%w; build it with: make build", err)
	}
	defer f.Close()
	b := &treeBuilder{root: tmp, ids: s.ids, sum: sha256.New()}
	if err := b.dir(".", 0o755, 0); err != nil {
		return nil, err
	}
	if err := b.file("envd", f, 0o755, 0); err != nil {
		return nil, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, err
	}
	sum := hex.EncodeToString(b.sum.Sum(nil))
	final := filepath.Join(s.dir, "envd-"+sum)
	if err := s.adopt(tmp, final); err != nil {
		return nil, err
	}
	return &Image{ID: "sha256:" + sum, Tree: final, Config: Config{Entrypoint: []string{"/envd"}}}, nil
}

// copyTree copies what the whole world may read of a file, link or directory.
func (b *treeBuilder) copyTree(from, to string, id int) error {
	st, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := b.parents(to); err != nil {
		return err
	}
	switch mode := st.Mode(); {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return b.link(to, target)
	case mode.IsDir():
		entries, err := os.ReadDir(from)
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := b.dir(to, 0o755, id); err != nil {
			return err
		}
		slices.SortFunc(entries, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
		for _, e := range entries {
			if err := b.copyTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), id); err != nil {
				return err
			}
		}
		return nil
	case mode.IsRegular() && mode.Perm()&0o004 != 0 && st.Size() <= maxEtcFile:
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		return b.file(to, io.LimitReader(f, maxEtcFile), mode.Perm()&0o755|0o600, id)
	}
	return nil
}
