package launch

import "golang.org/x/sys/unix"

// Syscall is a system call by name, as an OCI runtime wants it, and by number.
type Syscall struct {
	Name   string
	Number uint32
}

// Refused are the system calls a container never needs and whose implementation has been a way out of containers,
// or that act on the machine as a whole. They fail with EPERM, in the spirit of the default profiles of the field.
var Refused = append([]Syscall{
	{"acct", unix.SYS_ACCT}, {"add_key", unix.SYS_ADD_KEY}, {"bpf", unix.SYS_BPF},
	{"clock_adjtime", unix.SYS_CLOCK_ADJTIME}, {"clock_settime", unix.SYS_CLOCK_SETTIME},
	{"delete_module", unix.SYS_DELETE_MODULE}, {"fanotify_init", unix.SYS_FANOTIFY_INIT},
	{"finit_module", unix.SYS_FINIT_MODULE}, {"fsconfig", unix.SYS_FSCONFIG}, {"fsmount", unix.SYS_FSMOUNT},
	{"fsopen", unix.SYS_FSOPEN}, {"fspick", unix.SYS_FSPICK}, {"init_module", unix.SYS_INIT_MODULE},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER}, {"io_uring_register", unix.SYS_IO_URING_REGISTER},
	{"io_uring_setup", unix.SYS_IO_URING_SETUP}, {"kcmp", unix.SYS_KCMP},
	{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD}, {"kexec_load", unix.SYS_KEXEC_LOAD}, {"keyctl", unix.SYS_KEYCTL},
	{"lookup_dcookie", unix.SYS_LOOKUP_DCOOKIE}, {"mount", unix.SYS_MOUNT}, {"mount_setattr", unix.SYS_MOUNT_SETATTR},
	{"move_mount", unix.SYS_MOVE_MOUNT}, {"nfsservctl", unix.SYS_NFSSERVCTL},
	{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT}, {"open_tree", unix.SYS_OPEN_TREE},
	{"open_tree_attr", sysOpenTreeAttr}, {"perf_event_open", unix.SYS_PERF_EVENT_OPEN},
	{"pivot_root", unix.SYS_PIVOT_ROOT}, {"quotactl", unix.SYS_QUOTACTL}, {"quotactl_fd", unix.SYS_QUOTACTL_FD},
	{"reboot", unix.SYS_REBOOT}, {"request_key", unix.SYS_REQUEST_KEY}, {"setns", unix.SYS_SETNS},
	{"settimeofday", unix.SYS_SETTIMEOFDAY}, {"swapoff", unix.SYS_SWAPOFF}, {"swapon", unix.SYS_SWAPON},
	{"syslog", unix.SYS_SYSLOG}, {"umount2", unix.SYS_UMOUNT2}, {"userfaultfd", unix.SYS_USERFAULTFD},
	{"vhangup", unix.SYS_VHANGUP},
}, refusedHere...)

const (
	sysOpenTreeAttr = 467 // Linux 6.15, the same number on every architecture

	// NewNamespaces are the flags of clone and unshare that a container must not use.
	NewNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME
)

// What is taken from a container's /proc and /sys, because it tells about the machine or could change it.
var (
	HiddenFiles = []string{
		"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/kallsyms", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	ReadOnlyFiles = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)
