package podinit

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

const (
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
	for i, call := range launch.Refused {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: call.Number, SkipTrue: uint8(len(launch.Refused) - i)})
	}
	program = append(program, bpf.Jump{Skip: 1}, deny)
	// The flags of clone3 lie in memory, out of a filter's sight: callers fall back to clone when it does not exist.
	program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1}, absent)
	for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 4},
			bpf.LoadAbsolute{Off: offsetArg0, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: launch.NewNamespaces, SkipTrue: 1},
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
