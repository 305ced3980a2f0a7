package podinit

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// raiseLoopback brings up lo and, in a Pod without another interface, gives it the Pod's own address.
// Plain rtnetlink messages keep the launcher small.
func raiseLoopback(address string) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const lo = 1 // the loopback interface is the first of every network namespace
	link := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(link[4:], lo)
	binary.NativeEndian.PutUint32(link[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(link[12:], unix.IFF_UP)
	if err := rtnetlink(fd, unix.RTM_NEWLINK, 0, link); err != nil {
		return err
	}
	if address == "" {
		return nil
	}
	ip, err := netip.ParseAddr(address)
	if err != nil || !ip.Is4() {
		return fmt.Errorf("the Pod address %q is not an IPv4 address", address)
	}
	msg := make([]byte, unix.SizeofIfAddrmsg)
	msg[0], msg[1] = unix.AF_INET, 32
	binary.NativeEndian.PutUint32(msg[4:], lo)
	for _, attr := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		head := make([]byte, unix.SizeofRtAttr)
		binary.NativeEndian.PutUint16(head, unix.SizeofRtAttr+4)
		binary.NativeEndian.PutUint16(head[2:], attr)
		msg = append(append(msg, head...), ip.AsSlice()...)
	}
	return rtnetlink(fd, unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, msg)
}

func rtnetlink(fd int, kind uint16, flags uint16, payload []byte) error {
	msg := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(payload))
	binary.NativeEndian.PutUint32(msg, uint32(cap(msg)))
	binary.NativeEndian.PutUint16(msg[4:], kind)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	msg = append(msg, payload...)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("unexpected answer of the kernel to a route message")
	}
	if code := int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
