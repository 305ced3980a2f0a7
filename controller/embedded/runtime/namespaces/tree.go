package namespaces

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// RemoveTree deletes a file, or a directory that a sandbox wrote in. However deep the sandbox nested its directories, it keeps two
// descriptors open: a directory that is not empty is moved up to the top and emptied there. (os.RemoveAll holds one per
// level, so a sandbox could use up the controller's.) Directories without permissions, which a sandbox of an ordinary
// user can leave, are opened up first. What is not there is no error.
func RemoveTree(dir string) error {
	top, err := openDir(unix.AT_FDCWD, dir)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // a file, a socket, a link
		return os.Remove(dir)
	case err != nil:
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	t := &removal{top: top}
	for range attempts {
		if err = t.run(); err == nil {
			err = unix.Rmdir(dir)
		}
		if !errors.Is(err, unix.ENOTEMPTY) {
			break // another removal, of something inside, may still move things about
		}
	}
	_ = unix.Close(top)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// attempts bounds how often a directory that fills up again is emptied.
const attempts = 1000

// removal empties one directory. What waits in it to be emptied bears a name of the removal's own.
type removal struct {
	top     int
	waiting []string
	moved   int
}

func (t *removal) run() error {
	if err := t.empty(t.top, true); err != nil {
		return err
	}
	for len(t.waiting) > 0 {
		name := t.waiting[len(t.waiting)-1]
		t.waiting = t.waiting[:len(t.waiting)-1]
		dir, err := openDir(t.top, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		err = t.empty(dir, false)
		_ = unix.Close(dir)
		if err == nil {
			err = unix.Unlinkat(t.top, name, unix.AT_REMOVEDIR)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// empty removes everything in dir but the directories that are not empty, which it moves to the top.
func (t *removal) empty(dir int, isTop bool) error {
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := unix.Unlinkat(dir, name, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			if err = t.moveUp(dir, name, isTop); err != nil {
				return err
			}
			continue
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

func (t *removal) moveUp(dir int, name string, isTop bool) error {
	for {
		t.moved++
		to := ".removing-" + strconv.Itoa(t.moved)
		if isTop && name == to {
			t.waiting = append(t.waiting, to)
			return nil
		}
		err := unix.Renameat2(dir, name, t.top, to, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EACCES) { // moving a directory rewrites its "..", which wants the right to write in it
			_ = unix.Fchmodat(dir, name, 0o700, 0)
			err = unix.Renameat2(dir, name, t.top, to, unix.RENAME_NOREPLACE)
		}
		if errors.Is(err, unix.EEXIST) {
			continue // the sandbox used that name
		}
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		t.waiting = append(t.waiting, to)
		return nil
	}
}

// openDir opens a directory and nothing else, giving its owner the rights to empty it where they are missing.
func openDir(at int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	_ = unix.Fchmodat(at, name, 0o700, unix.AT_SYMLINK_NOFOLLOW)
	dir, err := unix.Openat(at, name, flags, 0)
	if errors.Is(err, unix.EACCES) {
		_ = unix.Fchmodat(at, name, 0o700, 0)
		dir, err = unix.Openat(at, name, flags, 0)
	}
	return dir, err
}

// namesIn lists a directory without taking over its descriptor.
func namesIn(dir int) ([]string, error) {
	copied, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(copied), "directory")
	defer f.Close()
	// The copy shares the place in the directory with the original, which an earlier attempt has left at the end.
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return f.Readdirnames(-1)
}
