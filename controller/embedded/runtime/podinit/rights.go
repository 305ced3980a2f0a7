package podinit

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// lastCapability is the highest capability this kernel knows.
func lastCapability() int {
	for c := 63; c > 0; c-- {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil {
			return c
		}
	}
	return 0
}

// becomeUser drops the capabilities and takes on the container's user. Raw system calls act on this thread only,
// which is the one that becomes the program.
func becomeUser(c *launch.Container) error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	last := lastCapability()
	for cap := 0; cap <= last; cap++ {
		if slices.Contains(c.Capabilities, cap) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(cap), 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", cap, err)
		}
	}
	if !c.KeepGroups {
		if err := setgroups(c.Groups); err != nil {
			return fmt.Errorf("set the supplementary groups: %w", err)
		}
	}
	gid, uid := uintptr(c.GID), uintptr(c.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("become group %d: %w", c.GID, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("become user %d: %w", c.UID, errno)
	}
	var keep [2]uint32
	if c.UID == 0 {
		for _, cap := range c.Capabilities {
			keep[cap/32] |= 1 << (cap % 32)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: keep[0], Permitted: keep[0]},
		{Effective: keep[1], Permitted: keep[1]},
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}

func setgroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	return nil
}
