package node

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// measure adds up what files hold of a disk.
type measure struct {
	bytes uint64
	left  int // how many more files are looked at
	buf   [32 << 10]byte
}

// level is a directory on the way down, with the directories in it that are still to be looked at.
type level struct {
	dev, inode uint64
	pending    []string
}

// diskUse is how many bytes of the disk the files below dir hold, as far as the first most of them. What goes away or
// is moved about meanwhile is not counted.
//
// The sandbox decides how the tree looks: however deep it nests its directories and however long that makes their
// paths, one of them is open at a time, and no link is followed.
func diskUse(dir string, most int) uint64 {
	m := &measure{left: most}
	fd, err := openDirectory(unix.AT_FDCWD, dir)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	path := []level{m.count(fd)}
	for m.left > 0 {
		here := &path[len(path)-1]
		if n := len(here.pending); n > 0 {
			name := here.pending[n-1]
			here.pending = here.pending[:n-1]
			child, err := openDirectory(fd, name)
			if err != nil {
				continue
			}
			_ = unix.Close(fd)
			fd = child
			path = append(path, m.count(fd))
			continue
		}
		if path = path[:len(path)-1]; len(path) == 0 {
			break
		}
		parent, err := openDirectory(fd, "..")
		if err != nil {
			break
		}
		_ = unix.Close(fd)
		fd = parent
		var st unix.Stat_t
		if up := path[len(path)-1]; unix.Fstat(fd, &st) != nil || st.Dev != up.dev || st.Ino != up.inode {
			break // it was moved: above it is something else now
		}
	}
	return m.bytes
}

func openDirectory(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// count adds a directory and the files in it, and returns it with the directories in it.
func (m *measure) count(dir int) level {
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil {
		return level{}
	}
	here := level{dev: st.Dev, inode: st.Ino}
	m.bytes += uint64(st.Blocks) * 512
	for m.left > 0 {
		n, err := unix.ReadDirent(dir, m.buf[:])
		if err != nil || n <= 0 {
			break
		}
		_, _, names := unix.ParseDirent(m.buf[:n], -1, nil)
		m.left -= len(names)
		for _, name := range names {
			if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				here.pending = append(here.pending, name)
				continue
			}
			// All names of a file are in the same tree: each counts its share.
			m.bytes += uint64(st.Blocks) * 512 / max(uint64(st.Nlink), 1) //nolint:unconvert // 32 bits wide on arm64
		}
	}
	return here
}

// deletedUse is how many bytes of the disk the deleted files hold that processes of the sandbox of a first process have
// open, as far as the first most descriptors.
func deletedUse(first, most int) uint64 {
	proc := filepath.Join("/proc", strconv.Itoa(first), "root", "proc") // which the launcher has mounted for itself
	processes, err := os.ReadDir(proc)
	if err != nil {
		return 0
	}
	var bytes uint64
	seen := map[[2]uint64]bool{}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		dir := filepath.Join(proc, p.Name(), "fd")
		files, _ := os.ReadDir(dir) // of a process that has gone there are none
		for _, f := range files {
			if most--; most < 0 {
				return bytes
			}
			var st unix.Stat_t
			path := filepath.Join(dir, f.Name())
			if unix.Stat(path, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || seen[[2]uint64{st.Dev, st.Ino}] {
				continue
			}
			seen[[2]uint64{st.Dev, st.Ino}] = true
			var fs unix.Statfs_t
			if unix.Statfs(path, &fs) == nil && fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC {
				bytes += uint64(st.Blocks) * 512
			}
		}
	}
	return bytes
}

// deleted is what deleted files of the Pod hold.
func (w *worker) deleted(most int) uint64 {
	p := w.currentSandbox()
	if p == nil {
		return 0
	}
	return deletedUse(p.PID(), most)
}
