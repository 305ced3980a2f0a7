package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

const (
	// maxUnpacked bounds the bytes of one image on the disk, so that a small archive cannot fill it.
	maxUnpacked = 64 << 30
	// maxKept is the room, in bytes, that an image leaves on the disk; on a small disk it is a tenth. Twice as much as
	// what the node defends by evicting Pods, which have nothing to do with it.
	maxKept = 2 << 30
	// roomEvery is after how many bytes the room is looked at.
	roomEvery = 16 << 20

	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// unpacker writes the layers of an image on top of each other into one directory. Names and links are resolved as if
// that directory were "/", by the kernel, so that no entry is written outside of it.
type unpacker struct {
	root    int
	ids     runtime.IDs
	written int64
	checked int64 // of written, when the room was last looked at
	// here are the paths that the current layer has made: its own whiteouts do not hide them.
	here map[string]bool
	// modes of directories are set last: a read-only one could not be filled.
	modes map[string]uint32
}

func newUnpacker(dir string, ids runtime.IDs) (*unpacker, error) {
	root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	u := &unpacker{root: root, ids: ids, modes: map[string]uint32{}}
	if err := u.own(root, "", 0, 0); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

func (u *unpacker) close() { unix.Close(u.root) }

// layer applies one layer to the tree.
func (u *unpacker) layer(ctx context.Context, r io.Reader) error {
	u.here = map[string]bool{}
	archive := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// The digest of a layer covers what follows the end mark too.
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := u.entry(h, archive); err != nil {
			return fmt.Errorf("entry %q: %w", h.Name, err)
		}
	}
}

// clean returns a name relative to the root, and refuses one that tries to leave it.
func clean(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", errors.New("the name contains a zero byte")
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." {
			return "", errors.New(`the name contains "..": the image tries to write outside of its root`)
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // about the archive, whatever its name
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if name == "" {
		if h.Typeflag == tar.TypeDir {
			u.modes["."] = uint32(h.Mode) & 0o7777
		}
		return nil
	}
	dir, base := path.Split(name)
	parent, err := launch.EnsureInRoot(u.root, "./"+dir, false, func(dir int, name string) error {
		return u.own(dir, name, 0, 0)
	})
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if strings.HasPrefix(base, whiteoutPrefix) {
		return u.whiteout(parent, dir, base)
	}
	for p := name; p != "." && !u.here[p]; p = path.Dir(p) {
		u.here[p] = true
	}
	return u.create(h, parent, name, base, content)
}

func (u *unpacker) create(h *tar.Header, parent int, name, base string, content io.Reader) error {
	mode := uint32(h.Mode) & 0o7777
	if h.Typeflag != tar.TypeDir || !isDir(parent, base) {
		if err := remove(parent, base); err != nil {
			return err
		}
		delete(u.modes, name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := unix.Mkdirat(parent, base, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		u.modes[name] = mode
		return u.own(parent, base, h.Uid, h.Gid)
	case tar.TypeReg:
		return u.regular(h, parent, base, mode, content)
	case tar.TypeSymlink:
		if err := unix.Symlinkat(h.Linkname, parent, base); err != nil {
			return err
		}
		return u.own(parent, base, h.Uid, h.Gid)
	case tar.TypeLink:
		return u.hardLink(h.Linkname, parent, base)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if strings.HasPrefix(name, "dev/") {
			return nil // every container has a /dev of its own
		}
		return errors.New("device files and pipes are refused")
	default:
		return fmt.Errorf("entries of type %q are not known", h.Typeflag)
	}
}

func (u *unpacker) regular(h *tar.Header, parent int, base string, mode uint32, content io.Reader) error {
	fd, err := unix.Openat(parent, base, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	for err == nil {
		var n int64
		n, err = io.CopyN(f, content, roomEvery)
		u.written += n
		if roomErr := u.checkRoom(); roomErr != nil {
			return roomErr
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if err := u.own(parent, base, h.Uid, h.Gid); err != nil {
		return err
	}
	// After the owner, which clears the set-user-id bits.
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	times := unix.NsecToTimeval(h.ModTime.UnixNano())
	return unix.Futimes(fd, []unix.Timeval{times, times})
}

// checkRoom refuses an image that is too large, or fills the disk.
func (u *unpacker) checkRoom() error {
	if u.written > maxUnpacked {
		return fmt.Errorf("the image is larger than %d GiB", maxUnpacked>>30)
	}
	if u.written-u.checked < roomEvery {
		return nil
	}
	u.checked = u.written
	var s unix.Statfs_t
	if err := unix.Fstatfs(u.root, &s); err != nil {
		return err
	}
	free, kept := s.Bavail*uint64(s.Bsize), min(s.Blocks*uint64(s.Bsize)/10, maxKept)
	if free < kept {
		return fmt.Errorf("the image does not fit: the disk has %d MB left, and %d MB are kept for the sandboxes; make room, or use a smaller image", free>>20, kept>>20)
	}
	return nil
}

func (u *unpacker) hardLink(target string, parent int, base string) error {
	name, err := clean(target)
	if err != nil {
		return fmt.Errorf("link to %q: %w", target, err)
	}
	dir, last := path.Split(name)
	how := unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	from, err := unix.Openat2(u.root, "./"+dir, &how)
	if err != nil {
		return fmt.Errorf("link to %q: %w", target, err)
	}
	defer unix.Close(from)
	if err := unix.Linkat(from, last, parent, base, 0); err != nil {
		return fmt.Errorf("link to %q: %w", target, err)
	}
	return nil
}

// whiteout removes what lower layers have: one name, or with the opaque mark everything in the directory.
func (u *unpacker) whiteout(parent int, dir, base string) error {
	if base == whiteoutOpaque {
		return u.hideLower(parent, strings.TrimSuffix(dir, "/"))
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return errors.New("the whiteout names nothing")
	}
	if u.here[path.Join(dir, name)] {
		return nil
	}
	delete(u.modes, path.Join(dir, name))
	return remove(parent, name)
}

// hideLower empties a directory of everything that the current layer has not made.
func (u *unpacker) hideLower(dir int, name string) error {
	entries, err := os.ReadDir(fdPath(dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		child := path.Join(name, e.Name())
		if !u.here[child] {
			if err := remove(dir, e.Name()); err != nil {
				return err
			}
			continue
		}
		if !e.IsDir() {
			continue
		}
		fd, err := unix.Openat(dir, e.Name(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = u.hideLower(fd, child)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// finish sets the modes of directories.
func (u *unpacker) finish() error {
	for name, mode := range u.modes {
		how := unix.OpenHow{
			Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
		}
		fd, err := unix.Openat2(u.root, name, &how)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue // a later layer has replaced it
		}
		if err != nil {
			return fmt.Errorf("directory %q: %w", name, err)
		}
		err = unix.Fchmod(fd, mode)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("directory %q: %w", name, err)
		}
	}
	return nil
}

func (u *unpacker) own(dir int, base string, uid, gid int) error {
	if u.ids.Single() {
		return nil
	}
	if uid < 0 || gid < 0 || max(uid, gid) >= u.ids.Size {
		return fmt.Errorf("owner %d:%d is outside of 0..%d, the users a sandbox has here", uid, gid, u.ids.Size-1)
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if base == "" {
		flags = unix.AT_EMPTY_PATH
	}
	return unix.Fchownat(dir, base, u.ids.Base+uid, u.ids.Base+gid, flags)
}

func isDir(parent int, base string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// remove deletes a name with everything under it; a link is deleted, never followed.
func remove(parent int, base string) error {
	err := unix.Unlinkat(parent, base, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return os.RemoveAll(path.Join(fdPath(parent), base))
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
