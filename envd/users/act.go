package users

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Act runs work with the rights of u, so that the kernel's permission checks are u's: a link that the sandbox planted
// leads no further than u could have gone without it, and what is created belongs to u.
//
// The rights are those of one thread. Real and saved uid stay root's, so that u can neither signal nor trace envd
// meanwhile. work must stay on its goroutine and be short; descriptors that it opens outlive it.
func (u User) Act(work func() error) error {
	if os.Geteuid() != 0 || u.UID == 0 {
		return work()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		groups, err := unix.Getgroups()
		if err == nil {
			err = become(u)
		}
		if err != nil {
			done <- err // still locked: the thread ends with the goroutine and takes its rights along
			return
		}
		err = work()
		if restore(groups) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// keep leaves an id as it is in setresuid and setresgid.
const keep = -1

func become(u User) error {
	if err := setGroups(u.Groups); err != nil {
		return fmt.Errorf("cannot take the groups of user '%s': %w", u.Name, err)
	}
	if err := setIDs(unix.SYS_SETRESGID, u.GID); err != nil {
		return fmt.Errorf("cannot take the gid of user '%s': %w", u.Name, err)
	}
	if err := setIDs(unix.SYS_SETRESUID, u.UID); err != nil {
		return fmt.Errorf("cannot become user '%s': %w", u.Name, err)
	}
	return nil
}

func restore(groups []int) error {
	if err := setIDs(unix.SYS_SETRESUID, 0); err != nil {
		return err
	}
	if err := setIDs(unix.SYS_SETRESGID, os.Getgid()); err != nil {
		return err
	}
	return setGroups(groups)
}

// setIDs sets the effective id of this thread alone. The wrappers of syscall would change every thread.
func setIDs(call uintptr, id int) error {
	unchanged := keep
	if _, _, errno := unix.RawSyscall(call, uintptr(unchanged), uintptr(id), uintptr(unchanged)); errno != 0 {
		return errno
	}
	return nil
}

func setGroups(groups []int) error {
	if !groupsAllowed() {
		return nil
	}
	var first unsafe.Pointer
	ids := make([]uint32, len(groups))
	for i, group := range groups {
		ids[i] = uint32(group)
	}
	if len(ids) > 0 {
		first = unsafe.Pointer(&ids[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(ids)), uintptr(first), 0); errno != 0 {
		return errno
	}
	runtime.KeepAlive(ids)
	return nil
}

// Credential is what a child that runs as u is given. Only root can give it.
func (u User) Credential() *syscall.Credential {
	groups := make([]uint32, len(u.Groups))
	for i, group := range u.Groups {
		groups[i] = uint32(group)
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: groups, NoSetGroups: !groupsAllowed()}
}

// groupsAllowed is false in a user namespace that maps a single id: there the kernel forbids setgroups for good.
var groupsAllowed = sync.OnceValue(func() bool {
	setting, err := os.ReadFile("/proc/self/setgroups")
	return err != nil || string(setting) != "deny\n"
})
