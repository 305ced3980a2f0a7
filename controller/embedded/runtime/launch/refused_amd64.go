package launch

import "golang.org/x/sys/unix"

var refusedHere = []Syscall{
	{"create_module", unix.SYS_CREATE_MODULE}, {"get_kernel_syms", unix.SYS_GET_KERNEL_SYMS},
	{"ioperm", unix.SYS_IOPERM}, {"iopl", unix.SYS_IOPL}, {"query_module", unix.SYS_QUERY_MODULE},
	{"uselib", unix.SYS_USELIB}, {"_sysctl", unix.SYS__SYSCTL},
}
