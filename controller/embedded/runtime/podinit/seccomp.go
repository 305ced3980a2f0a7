package podinit

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refused are the system calls a container never needs and whose implementation has been a way out of containers,
// or that act on the machine as a whole. They fail with EPERM, in the spirit of the default profiles of the field.
var refused = append([]uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME,
	unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_IO_URING_SETUP, unix.SYS_KCMP, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_NFSSERVCTL,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, sysOpenTreeAttr, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETNS,
	unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2,
	unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}, refusedHere...)

const (
	sysOpenTreeAttr = 467 // Linux 6.15, the same number on every architecture

	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

	// Offsets in struct seccomp_data; both architectures are little-endian.
	offsetNr   = 0
	offsetArch = 4
	offsetArg0 = 16
	offsetArg1 = 24

	// Values of linux/seccomp.h.
	retAllow = 0x7fff0000
	retErrno = 0x00050000
)

// filter is the program that decides about every system call of a container.
func filter() ([]bpf.RawInstruction, error) {
	deny := bpf.RetConstant{Val: retErrno | uint32(unix.EPERM)}
	absent := bpf.RetConstant{Val: retErrno | uint32(unix.ENOSYS)}
	program := []bpf.Instruction{
		// Calls of another architecture would pass under other numbers.
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		absent,
		bpf.LoadAbsolute{Off: offsetNr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		absent,
	}
	for i, nr := range refused {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipTrue: uint8(len(refused) - i)})
	}
	program = append(program, bpf.Jump{Skip: 1}, deny)
	// The flags of clone3 lie in memory, out of a filter's sight: callers fall back to clone when it does not exist.
	program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1}, absent)
	for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 4},
			bpf.LoadAbsolute{Off: offsetArg0, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: newNamespaces, SkipTrue: 1},
			deny,
			bpf.RetConstant{Val: retAllow},
		)
	}
	// Sockets that leave the network namespace (a hypervisor's channel) or reach rarely tested kernel code.
	program = append(program,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_SOCKET, SkipTrue: 5},
		bpf.LoadAbsolute{Off: offsetArg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_VSOCK, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_ALG, SkipTrue: 1},
		bpf.RetConstant{Val: retAllow},
		deny,
	)
	// Typing into the terminal of another process.
	program = append(program,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_IOCTL, SkipTrue: 4},
		bpf.LoadAbsolute{Off: offsetArg1, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.TIOCLINUX, SkipTrue: 1},
		deny,
		bpf.RetConstant{Val: retAllow},
	)
	return bpf.Assemble(program)
}

// installFilter applies the filter to this thread.
func installFilter() error {
	raw, err := filter()
	if err != nil {
		return err
	}
	instructions := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		instructions[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(instructions)), Filter: &instructions[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("the kernel refuses it: %w", err)
	}
	return nil
}
