package node

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// heldOpen is how many directories on the way down stay open, so that the way back up leads to them wherever they
	// are by then. No tree that people make is deeper.
	heldOpen = 256
	// idleScans is how often in a row a directory is read in vain for directories that were there and could not be
	// opened, and maxReread how many names are read for that in one measurement.
	idleScans = 16
	maxReread = 1_000_000
)

// measure adds up what files hold of a disk.
type measure struct {
	bytes   uint64
	left    int // how many more files are looked at
	reread  int // how many more names are read again
	entered map[inode]bool
	path    []level
	buf     [32 << 10]byte
}

type inode struct{ dev, ino uint64 }

// level is a directory on the way down, with the directories in it that are still to be looked at.
type level struct {
	inode
	fd      int // -1 while it is not open
	pending []string
	missed  bool // one of them could not be opened under the name that it had
	idle    int  // how often the directory was read again without finding one
}

// diskUse is how many bytes of the disk the files below dir hold, as far as the first most of them.
//
// The sandbox decides how the tree looks, and changes it meanwhile. However deep it nests its directories and however
// long that makes their paths, few of them are open at a time, and no link is followed. A directory that was renamed
// before it could be opened is looked for again, and none is counted twice.
func diskUse(dir string, most int) uint64 {
	m := &measure{left: most, reread: maxReread, entered: map[inode]bool{}}
	defer m.close()
	for m.enter(unix.AT_FDCWD, dir); len(m.path) > 0 && m.left > 0; {
		here := &m.path[len(m.path)-1]
		switch n := len(here.pending); {
		case n > 0:
			name := here.pending[n-1]
			here.pending = here.pending[:n-1]
			if !m.enter(here.fd, name) {
				here.missed = true
			}
		case here.missed && here.idle < idleScans && m.reread > 0:
			here.idle++
			m.search(here)
		default:
			m.leave()
		}
	}
	return m.bytes
}

// enter goes down into a directory and counts what is directly in it, unless it has been there. It reports whether the
// directory was found.
func (m *measure) enter(at int, name string) bool {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || m.entered[inode{st.Dev, st.Ino}] {
		_ = unix.Close(fd)
		return true
	}
	here := level{inode: inode{st.Dev, st.Ino}, fd: fd}
	m.entered[here.inode] = true
	m.bytes += held(&st)
	m.scan(&here)
	if n := len(m.path); n > 0 {
		m.path[n-1].idle = 0
		if n > heldOpen {
			_ = unix.Close(m.path[n-1].fd)
			m.path[n-1].fd = -1
		}
	}
	m.path = append(m.path, here)
	return true
}

// leave goes back up: to the directory above, or, when the way there leads elsewhere by now, to the next that is open.
func (m *measure) leave() {
	last := len(m.path) - 1
	fd := m.path[last].fd
	m.path = m.path[:last]
	if last > 0 && m.path[last-1].fd < 0 {
		above := &m.path[last-1]
		up, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		var st unix.Stat_t
		switch {
		case err != nil:
		case unix.Fstat(up, &st) == nil && above.inode == inode{st.Dev, st.Ino}:
			above.fd = up
		default:
			_ = unix.Close(up)
		}
	}
	_ = unix.Close(fd)
	for n := len(m.path); n > 0 && m.path[n-1].fd < 0; n-- {
		m.path = m.path[:n-1]
	}
}

func (m *measure) close() {
	for _, l := range m.path {
		if l.fd >= 0 {
			_ = unix.Close(l.fd)
		}
	}
}

// scan counts the files in a directory and notes the directories in it.
func (m *measure) scan(here *level) {
	m.read(here.fd, &m.left, func(name string, _ uint64, _ uint8) bool {
		var st unix.Stat_t
		switch {
		case unix.Fstatat(here.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil:
			here.missed = true
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			here.pending = append(here.pending, name)
		default:
			// All names of a file are in the same tree: each counts its share.
			m.bytes += held(&st) / max(uint64(st.Nlink), 1) //nolint:unconvert // 32 bits wide on arm64
		}
		return true
	})
}

// search reads a directory again and enters the first one in it that it has not been to, at once: the name may not last.
func (m *measure) search(here *level) {
	if _, err := unix.Seek(here.fd, 0, unix.SEEK_SET); err != nil {
		return
	}
	at, depth := *here, len(m.path)
	m.read(at.fd, &m.reread, func(name string, ino uint64, kind uint8) bool {
		if kind == unix.DT_DIR || kind == unix.DT_UNKNOWN {
			if !m.entered[inode{at.dev, ino}] {
				m.enter(at.fd, name)
			}
		}
		return len(m.path) == depth
	})
}

// read calls each with the names in a directory, their inodes and their types, until it returns false.
func (m *measure) read(dir int, left *int, each func(name string, ino uint64, kind uint8) bool) {
	for *left > 0 {
		n, err := unix.ReadDirent(dir, m.buf[:])
		if err != nil || n <= 0 {
			return
		}
		// struct linux_dirent64 of getdents64(2): inode, offset, length of the record, type, name with a final NUL.
		for rest := m.buf[:n]; len(rest) > nameAt; rest = rest[binary.NativeEndian.Uint16(rest[16:]):] {
			name, _, _ := bytes.Cut(rest[nameAt:binary.NativeEndian.Uint16(rest[16:])], []byte{0})
			if string(name) == "." || string(name) == ".." {
				continue
			}
			*left--
			if !each(string(name), binary.NativeEndian.Uint64(rest), rest[nameAt-1]) {
				return
			}
		}
	}
}

// nameAt is where the name begins in a record of getdents64(2).
const nameAt = 19

// held is how many bytes of the disk a file holds.
func held(st *unix.Stat_t) uint64 { return uint64(st.Blocks) * 512 }

// deletedUse is how many bytes of the disk the deleted files hold that processes of the sandbox of a first process have
// open, as far as the first most descriptors.
func deletedUse(first, most int) uint64 {
	proc := filepath.Join("/proc", strconv.Itoa(first), "root", "proc") // which the launcher has mounted for itself
	processes, err := os.ReadDir(proc)
	if err != nil {
		return 0
	}
	var sum uint64
	seen := map[[2]uint64]bool{}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		dir := filepath.Join(proc, p.Name(), "fd")
		files, _ := os.ReadDir(dir) // of a process that has gone there are none
		for _, f := range files {
			if most--; most < 0 {
				return sum
			}
			var st unix.Stat_t
			path := filepath.Join(dir, f.Name())
			if unix.Stat(path, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || seen[[2]uint64{st.Dev, st.Ino}] {
				continue
			}
			seen[[2]uint64{st.Dev, st.Ino}] = true
			var fs unix.Statfs_t
			if unix.Statfs(path, &fs) == nil && fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC {
				sum += held(&st)
			}
		}
	}
	return sum
}

// deleted is what deleted files of the Pod hold.
func (w *worker) deleted(most int) uint64 {
	p := w.currentSandbox()
	if p == nil {
		return 0
	}
	return deletedUse(p.PID(), most)
}
