package podinit

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	// x32Bit is above every call number: there is no second ABI here.
	x32Bit = 0x40000000
)
