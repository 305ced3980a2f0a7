package podinit

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// x32Bit marks the calls of the x32 ABI, which share the architecture.
	x32Bit = 0x40000000
)

var refusedHere = []uint32{
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_QUERY_MODULE,
	unix.SYS_USELIB, unix.SYS__SYSCTL,
}
