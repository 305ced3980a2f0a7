package podinit

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// joinMain enters the namespaces of a running container and starts the exec stage in them. The user namespace stays
// the Pod's: a program with threads cannot change it, and the stage drops every right anyway.
func joinMain(pid int) int {
	if err := unix.CloseRange(filesFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return report(err)
	}
	binary, err := unix.Open(self, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return report(err)
	}
	// The file system attributes must be this thread's own before it can change the mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return report(err)
	}
	var namespaces []int
	for _, ns := range []string{"cgroup", "ipc", "pid", "mnt"} {
		fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/"+ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return report(fmt.Errorf("open the container's %s namespace: %w", ns, err))
		}
		namespaces = append(namespaces, fd)
	}
	for _, fd := range namespaces {
		if err := unix.Setns(fd, 0); err != nil {
			return report(fmt.Errorf("enter the container's namespaces: %w", err))
		}
	}
	files := []uintptr{0, 1, 2, specFD, statusFD}
	for fd := filesFD; ; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || fd == binary || fd == namespaces[0] {
			break
		}
		files = append(files, uintptr(fd))
	}
	child, err := syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(binary), []string{"sandbox-init", "exec"}, &syscall.ProcAttr{
		Env: stageEnv, Files: files,
	})
	if err != nil {
		return report(fmt.Errorf("start the command: %w", err))
	}
	runtime.KeepAlive(namespaces)
	os.NewFile(statusFD, "status").Close() // the child's copy is the one that counts
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(child, &status, 0, nil)
		if err != syscall.EINTR {
			break
		}
	}
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
