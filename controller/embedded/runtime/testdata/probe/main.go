// Probe tries, from inside a sandbox, what a sandbox must not be able to do. It prints one line an attempt:
// the name, a blank, and the kernel's answer ("ok" when it let it happen).
package main

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	attempts := []struct {
		name string
		try  func() error
	}{
		{"unshare-user", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"unshare-mount", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"clone-user", func() error { return call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0) }},
		{"clone3", func() error { return call(unix.SYS_CLONE3, 0, 0, 0) }},
		{"setns", func() error { return unix.Setns(0, unix.CLONE_NEWNET) }},
		{"mount", func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") }},
		{"remount", func() error { return unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
		{"umount", func() error { return unix.Unmount("/proc/kallsyms", 0) }},
		{"open-tree", func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE); return err }},
		{"fsopen", func() error { _, err := unix.Fsopen("tmpfs", 0); return err }},
		{"pivot-root", func() error { return unix.PivotRoot("/", "/tmp") }},
		{"mknod", func() error { return unix.Mknod("/tmp/disk", unix.S_IFBLK|0o666, int(unix.Mkdev(254, 0))) }},
		{"bpf", func() error { return call(unix.SYS_BPF, 0, 0, 0) }},
		{"perf", func() error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0) }},
		{"userfaultfd", func() error { return call(unix.SYS_USERFAULTFD, 0, 0, 0) }},
		{"io-uring", func() error { return call(unix.SYS_IO_URING_SETUP, 1, 0, 0) }},
		{"keyctl", func() error { return call(unix.SYS_KEYCTL, 0, 0, 0) }},
		{"kexec", func() error { return call(unix.SYS_KEXEC_LOAD, 0, 0, 0) }},
		{"module", func() error { return call(unix.SYS_DELETE_MODULE, 0, 0, 0) }},
		{"reboot", func() error { return call(unix.SYS_REBOOT, 0, 0, 0) }},
		{"settime", func() error { return unix.Settimeofday(&unix.Timeval{}) }},
		{"syslog", func() error { _, err := unix.Klogctl(3, make([]byte, 1)); return err }},
		{"handle", func() error { return call(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0) }},
		{"vsock", func() error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM) }},
		{"alg", func() error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET) }},
		{"packet", func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW) }},
		{"raw", func() error { return socket(unix.AF_INET, unix.SOCK_RAW) }},
		{"tiocsti", func() error {
			c := byte('x')
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
			return errnoError(errno)
		}},
		{"sethostname", func() error { return unix.Sethostname([]byte("other")) }},
		{"sysctl", func() error { return write("/proc/sys/net/ipv4/ip_forward") }},
		{"sysrq", func() error { return write("/proc/sysrq-trigger") }},
		{"kallsyms", func() error { return content("/proc/kallsyms") }},
		{"kcore", func() error { return content("/proc/kcore") }},
		{"firmware", func() error { return entries("/sys/firmware") }},
		{"cgroup", func() error { return unix.Mkdir("/sys/fs/cgroup/memory/x", 0o755) }},
		{"cgroup-v2", func() error { return unix.Mkdir("/sys/fs/cgroup/x", 0o755) }},
		{"memory-limit", func() error { return write("/sys/fs/cgroup/memory/memory.limit_in_bytes") }},
		{"memory-limit-v2", func() error { return write("/sys/fs/cgroup/memory.max") }},
		{"cgroup-mode", func() error { return unix.Chmod("/sys/fs/cgroup/memory", 0o777) }},
		{"write-usr", func() error { return os.WriteFile("/usr/probe", nil, 0o644) }},
		{"prlimit", func() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}) }},
	}
	for _, a := range attempts {
		err := a.try()
		if err == nil {
			fmt.Println(a.name, "ok")
			continue
		}
		fmt.Println(a.name, err)
	}
	for _, to := range os.Args[1:] {
		c, err := net.DialTimeout("tcp", to, 300*time.Millisecond)
		if err == nil {
			c.Close()
			fmt.Println("connect", to, "ok")
		}
	}
}

func call(nr, a, b, c uintptr) error {
	_, _, errno := unix.Syscall6(nr, a, b, c, 0, 0, 0)
	return errnoError(errno)
}

func errnoError(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func write(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// content fails when there is nothing to read.
func content(path string) error {
	data := make([]byte, 1)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(data)
	return err
}

func entries(path string) error {
	list, err := os.ReadDir(path)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("empty")
	}
	return err
}
