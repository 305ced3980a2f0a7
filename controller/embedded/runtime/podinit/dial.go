package podinit

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const dialTimeout = 10 * time.Second

// dial connects to a TCP port of the Pod, wherever the service listens: 127.0.0.1, ::1 or the Pod's own address.
func dial(port int, address string) (int, error) {
	if port < 1 || port > 65535 {
		return -1, fmt.Errorf("port %d is not in 1..65535: %w", port, unix.EINVAL)
	}
	fd, err := connect(&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}, unix.AF_INET)
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fd, err
	}
	if fd, err6 := connect(&unix.SockaddrInet6{Port: port, Addr: netip.IPv6Loopback().As16()}, unix.AF_INET6); err6 == nil {
		return fd, nil
	}
	if ip, parseErr := netip.ParseAddr(address); parseErr == nil && ip.Is4() {
		if fd, err4 := connect(&unix.SockaddrInet4{Port: port, Addr: ip.As4()}, unix.AF_INET); err4 == nil {
			return fd, nil
		}
	}
	return -1, err
}

func connect(to unix.Sockaddr, family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Connect(fd, to)
	if errors.Is(err, unix.EINPROGRESS) {
		err = waitConnected(fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func waitConnected(fd int) error {
	deadline := time.Now().Add(dialTimeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return unix.ETIMEDOUT
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if errors.Is(err, unix.EINTR) || (err == nil && n == 0) {
			continue
		}
		if err != nil {
			return err
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return err
		}
		if code != 0 {
			return unix.Errno(code)
		}
		return nil
	}
}
