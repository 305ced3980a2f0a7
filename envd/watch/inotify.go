package watch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watched is what a directory is watched for. Links are not followed and only directories are taken, so that a name
// that is replaced meanwhile cannot lead the watch elsewhere.
const watched = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

// inotify is one kernel instance. Reading waits in the runtime's poller and ends when it is closed.
type inotify struct {
	file *os.File
	fd   int
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &inotify{file: os.NewFile(uintptr(fd), "inotify"), fd: fd}, nil
}

// raw is one event of the kernel.
type raw struct {
	wd     int
	mask   uint32
	cookie uint32
	name   string
}

func (i *inotify) add(dir string) (int, error) {
	return unix.InotifyAddWatch(i.fd, dir, watched)
}

func (i *inotify) remove(wd int) {
	_, _ = unix.InotifyRmWatch(i.fd, uint32(wd))
}

// read waits for events.
func (i *inotify) read(buffer []byte) ([]raw, error) {
	n, err := i.file.Read(buffer)
	if err != nil {
		return nil, err
	}
	return decode(buffer[:n])
}

// pending says whether the kernel holds events that were not read yet.
func (i *inotify) pending() bool {
	n, err := unix.IoctlGetInt(i.fd, unix.TIOCINQ)
	return err == nil && n > 0
}

// decode splits a buffer as inotify(7) lays it out: wd, mask, cookie, length, and a name padded with NUL.
func decode(buffer []byte) ([]raw, error) {
	var events []raw
	for len(buffer) > 0 {
		if len(buffer) < unix.SizeofInotifyEvent {
			return events, fmt.Errorf("inotify: %d stray bytes", len(buffer))
		}
		length := int(binary.NativeEndian.Uint32(buffer[12:]))
		if length < 0 || length > len(buffer)-unix.SizeofInotifyEvent {
			return events, fmt.Errorf("inotify: a name of %d bytes in a rest of %d", length, len(buffer)-unix.SizeofInotifyEvent)
		}
		name, rest := buffer[unix.SizeofInotifyEvent:][:length], buffer[unix.SizeofInotifyEvent+length:]
		events = append(events, raw{
			wd:     int(int32(binary.NativeEndian.Uint32(buffer))),
			mask:   binary.NativeEndian.Uint32(buffer[4:]),
			cookie: binary.NativeEndian.Uint32(buffer[8:]),
			name:   string(bytes.TrimRight(name, "\x00")),
		})
		buffer = rest
	}
	return events, nil
}
