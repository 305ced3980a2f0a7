package podinit

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// x32Bit marks the calls of the x32 ABI, which share the architecture.
	x32Bit = 0x40000000
)
