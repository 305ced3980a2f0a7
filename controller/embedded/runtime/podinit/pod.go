package podinit

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// The descriptors the agent starts the launcher with.
const (
	listenFD = 3
	readyFD  = 4
	holdFD   = 5
)

// podMain prepares the Pod's namespaces and serves the control socket until it is killed.
// args: host name, Pod IP (empty: none on loopback), "keep" or "drop" (the machine's files under HostPrefix).
func podMain(args []string) int {
	ready := os.NewFile(readyFD, "ready")
	unix.CloseOnExec(listenFD)
	unix.CloseOnExec(readyFD)
	unix.CloseOnExec(holdFD)
	// Process 1 must not die of a stray signal. A handler, unlike "ignore", is not inherited by the containers.
	stray := make(chan os.Signal, 1)
	signal.Notify(stray, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	if err := setupPod(args); err != nil {
		fmt.Fprint(ready, err)
		return 1
	}
	server := newServer()
	go endUnlessHeld(os.NewFile(holdFD, "hold"))
	ready.Close()
	if err := server.accept(listenFD); err != nil {
		return 1
	}
	return 0
}

// endUnlessHeld exits when the agent dies before it has said that the Pod is on record: nobody would find it again.
func endUnlessHeld(hold *os.File) {
	if n, _ := hold.Read(make([]byte, 1)); n == 0 {
		os.Exit(1)
	}
	hold.Close()
}

func setupPod(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("the launcher takes 3 arguments, got %d: the controller and sandbox-init are of different builds", len(args))
	}
	hostname, address, files := args[0], args[1], args[2]
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := raiseLoopback(address); err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	if err := enterOwnRoot(files == "keep"); err != nil {
		return err
	}
	return capCounters()
}

// counterCaps bound what the kernel otherwise counts for the owner of all sandboxes' user namespaces together, so that
// one sandbox cannot use it up for the others and for the machine.
var counterCaps = map[string]string{
	"/proc/sys/user/max_inotify_instances": "64",
	"/proc/sys/user/max_inotify_watches":   "65536",
}

func capCounters() error {
	for file, limit := range counterCaps {
		if err := os.WriteFile(file, []byte(limit), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("bound the sandbox's share of a kernel counter: %w", err)
		}
	}
	for resource, most := range map[int]uint64{unix.RLIMIT_MSGQUEUE: maxMessageQueueBytes, unix.RLIMIT_SIGPENDING: maxPendingSignals} {
		var together unix.Rlimit
		err := unix.Getrlimit(resource, &together)
		if err == nil {
			own := min(most, together.Max/4)
			err = unix.Setrlimit(resource, &unix.Rlimit{Cur: own, Max: own})
		}
		if err != nil {
			return fmt.Errorf("bound the sandbox's message queues and pending signals: %w", err)
		}
	}
	return nil
}

// What a user of a sandbox may have of what the kernel also counts for the owner of all user namespaces together, there
// up to the limit that the agent had when it made the namespace. Where the agent could not lift its limit (it is not
// root, or may not: CAP_SYS_RESOURCE), the sandboxes share that, and each gets a quarter of it at most.
const (
	maxMessageQueueBytes = 819_200 // the kernel's default
	maxPendingSignals    = 16_384
)

// enterOwnRoot gives the launcher a file tree of its own: an empty tmpfs with /proc and /sys, and the machine's tree
// under HostPrefix only where the launcher has to open mounts by itself.
func enterOwnRoot(keepHost bool) error {
	const at = "/tmp"
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount the launcher's root: %w", err)
	}
	for _, dir := range []string{launch.HostPrefix, "/proc", "/sys", rootDir, launch.MemoryVolumeDir} {
		if err := os.Mkdir(at+dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", at+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w (inside another container parts of /proc are usually hidden, and the kernel refuses a new one)", err)
	}
	// A machine that hides parts of /sys does not allow a new one: containers go without.
	if err := unix.Mount("sysfs", at+"/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, ""); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := unix.PivotRoot(at, at+launch.HostPrefix); err != nil {
		return fmt.Errorf("enter the launcher's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if !keepHost {
		if err := unix.Unmount(launch.HostPrefix, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("leave the machine's files: %w", err)
		}
	}
	return nil
}
