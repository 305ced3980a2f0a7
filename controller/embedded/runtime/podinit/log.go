package podinit

import (
	"bufio"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLogFile bounds one of the two files of a container's log: the older one is overwritten.
	maxLogFile = 2 << 20
	// maxLogLine is where a long line is split into partial ones.
	maxLogLine = 16 << 10
)

// logWriter writes both outputs of a container to two files in turn, in the format of the container runtime
// interface: time, stream, P (partial) or F (full), text.
type logWriter struct {
	mu      sync.Mutex
	files   [2]*os.File
	current int
	size    int64
}

func newLog(a, b int) (*logWriter, error) {
	l := &logWriter{}
	for i, fd := range []int{a, b} {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			l.close()
			return nil, err
		}
		l.files[i] = os.NewFile(uintptr(dup), "log")
	}
	return l, nil
}

func (l *logWriter) close() {
	for _, f := range l.files {
		if f != nil {
			f.Close()
		}
	}
}

// drain copies a pipe to the log until the pipe ends. It goes on reading when the log cannot be written, so that a
// full disk does not stop the container.
func (l *logWriter) drain(stream string, pipe *os.File) {
	defer pipe.Close()
	r := bufio.NewReaderSize(pipe, maxLogLine)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			l.write(stream, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return // the end, or the pipe was closed here
		}
	}
}

func (l *logWriter) write(stream string, line []byte) {
	tag := "P"
	if n := len(line); line[n-1] == '\n' {
		line, tag = line[:n-1], "F"
	}
	entry := make([]byte, 0, len(line)+64)
	entry = time.Now().UTC().AppendFormat(entry, time.RFC3339Nano)
	entry = append(entry, ' ')
	entry = append(entry, stream...)
	entry = append(entry, ' ')
	entry = append(entry, tag...)
	entry = append(entry, ' ')
	entry = append(entry, line...)
	entry = append(entry, '\n')

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(entry)) > maxLogFile {
		l.current = 1 - l.current
		l.size = 0
		_ = l.files[l.current].Truncate(0)
	}
	// The files are opened for appending, so that a truncated one starts at its beginning.
	n, _ := l.files[l.current].Write(entry)
	l.size += int64(n)
}
