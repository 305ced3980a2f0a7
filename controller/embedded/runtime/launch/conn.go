package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxMessage = 64 << 10
	maxFiles   = 128
)

// Conn is one end of the control socket: JSON messages that may carry files. Sends are safe for concurrent use;
// one goroutine receives.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	mu   sync.Mutex
	buf  []byte
	oob  []byte
}

// NewConn takes over a connected SOCK_SEQPACKET socket.
func NewConn(fd int) (*Conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "control")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Conn{file: file, raw: raw}, nil
}

// Close ends the connection; a blocked Receive returns.
func (c *Conn) Close() error { return c.file.Close() }

// Send writes one message with the given descriptors, which stay the caller's.
func (c *Conn) Send(v any, fds ...int) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(data) > maxMessage || len(fds) > maxFiles {
		return fmt.Errorf("a control message of %d bytes and %d files exceeds the limit of %d and %d", len(data), len(fds), maxMessage, maxFiles)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var sendErr error
	err = c.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendmsg(int(fd), data, oob, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	if err != nil {
		return err
	}
	return sendErr
}

// Receive reads one message into v and returns the descriptors that came with it, close-on-exec. It returns io.EOF
// when the other end is gone.
func (c *Conn) Receive(v any) ([]int, error) {
	if c.buf == nil {
		c.buf = make([]byte, maxMessage)
		c.oob = make([]byte, unix.CmsgSpace(maxFiles*4))
	}
	var n, oobn, flags int
	var recvErr error
	err := c.raw.Read(func(fd uintptr) bool {
		n, oobn, flags, _, recvErr = unix.Recvmsg(int(fd), c.buf, c.oob, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(recvErr, unix.EAGAIN)
	})
	if err == nil {
		err = recvErr
	}
	if err != nil {
		return nil, err
	}
	if n == 0 && oobn == 0 {
		return nil, io.EOF
	}
	fds, err := parseRights(c.oob[:oobn])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("a control message was cut")
	}
	if err == nil {
		err = json.Unmarshal(c.buf[:n], v)
	}
	if err != nil {
		CloseAll(fds)
		return nil, err
	}
	return fds, nil
}

func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// WriteSpec puts v into a memfd, positioned at its start.
func WriteSpec(v any) (int, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return -1, err
	}
	fd, err := unix.MemfdCreate("spec", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for off := 0; off < len(data); {
		n, err := unix.Pwrite(fd, data[off:], int64(off))
		if err != nil {
			unix.Close(fd)
			return -1, err
		}
		off += n
	}
	return fd, nil
}

// ReadSpec reads what WriteSpec wrote.
func ReadSpec(fd int, v any) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	data := make([]byte, st.Size)
	for off := 0; off < len(data); {
		n, err := unix.Pread(fd, data[off:], int64(off))
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		off += n
	}
	return json.Unmarshal(data, v)
}
