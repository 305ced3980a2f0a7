package podinit

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// rootDir is where a container's root is put together before it becomes "/".
const rootDir = "/root"

// stageMain runs one stage; it returns only when the stage has failed, which it reports on the status pipe.
func stageMain(run func(*launch.Container) error) int {
	// Nothing that was passed may reach the container's program.
	if err := unix.CloseRange(specFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return report(fmt.Errorf("close descriptors on exec: %w", err))
	}
	var c launch.Container
	if err := launch.ReadSpec(specFD, &c); err != nil {
		return report(fmt.Errorf("read the container's description: %w", err))
	}
	return report(run(&c))
}

func report(err error) int {
	var errno syscall.Errno
	errors.As(err, &errno)
	status := os.NewFile(statusFD, "status")
	fmt.Fprintf(status, "%d %v", int(errno), err)
	return 1
}

// stageContainer builds the file tree of a container and becomes its program.
func stageContainer(c *launch.Container) error {
	passed := 0
	for _, m := range append([]launch.Mount{c.Root}, c.Mounts...) {
		if m.Passed {
			passed++
		}
	}
	// First of all into the cgroups, so that everything that follows is accounted and limited.
	if err := enterCgroups(c, filesFD+passed); err != nil {
		return err
	}
	c.CgroupFiles = 0
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("new cgroup namespace: %w", err)
	}
	next := filesFD
	if err := attachAll(c, &next); err != nil {
		return err
	}
	if err := enterRoot(); err != nil {
		return err
	}
	if err := hideKernelFiles(); err != nil {
		return err
	}
	if c.ReadOnlyRoot {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
			return fmt.Errorf("make the root file system read-only: %w", err)
		}
	}
	return finish(c, false)
}

// enterCgroups moves this process by the files that start with first.
func enterCgroups(c *launch.Container, first int) error {
	for i := range c.CgroupFiles {
		if _, err := unix.Write(first+i, []byte("0")); err != nil {
			return fmt.Errorf("enter the container's cgroup: %w", err)
		}
	}
	return nil
}

// enterRoot makes rootDir "/" and leaves the launcher's tree.
func enterRoot() error {
	if err := unix.Chdir(rootDir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter the container's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the launcher's root: %w", err)
	}
	return unix.Chdir("/")
}

func attachAll(c *launch.Container, next *int) error {
	root, err := openMount(c.Root, next)
	if err != nil {
		return err
	}
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, rootDir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach the root file system: %w", err)
	}
	// The descriptor of the detached mount is now one of the attached mount: targets are resolved inside it.
	for _, m := range c.Mounts {
		fd, err := openMount(m, next)
		if err != nil {
			if m.Optional {
				continue
			}
			return err
		}
		if err := attach(root, fd, m); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.Kind, m.Target, err)
		}
		unix.Close(fd)
	}
	return populateDev(root)
}

func openMount(m launch.Mount, next *int) (int, error) {
	if m.Passed {
		fd := *next
		*next++
		return fd, nil
	}
	return m.Open(launch.HostPrefix)
}

func attach(root, mount int, m launch.Mount) error {
	target, err := launch.EnsureInRoot(root, m.Target, m.File, nil)
	if err != nil {
		return fmt.Errorf("make the mount point: %w", err)
	}
	defer unix.Close(target)
	return unix.MoveMount(mount, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// populateDev adds the links every program expects. A /dev that is not ours (no tmpfs was mounted) has them already.
func populateDev(root int) error {
	dev, err := launch.EnsureInRoot(root, "/dev", false, nil)
	if err != nil {
		return err
	}
	defer unix.Close(dev)
	for name, to := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		if err := unix.Symlinkat(to, dev, name); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("/dev/%s: %w", name, err)
		}
	}
	return nil
}

// hideKernelFiles covers what tells about the machine or could change it.
func hideKernelFiles() error {
	for _, p := range launch.HiddenFiles {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			continue // this kernel does not have it
		}
		var err error
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = unix.Mount("tmpfs", p, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=0,mode=755")
		} else {
			err = unix.Mount("/dev/null", p, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("hide %s: %w", p, err)
		}
	}
	for _, p := range launch.ReadOnlyFiles {
		if err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return fmt.Errorf("make %s read-only: %w", p, err)
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
		if err := unix.MountSetattr(unix.AT_FDCWD, p, 0, &attr); err != nil {
			return fmt.Errorf("make %s read-only: %w", p, err)
		}
	}
	return nil
}

// stageExec becomes a command in a running container.
func stageExec(c *launch.Container) error { return finish(c, true) }

// finish gives up every right the container does not have and becomes its program.
func finish(c *launch.Container, joined bool) error {
	if err := enterCgroups(c, filesFD); err != nil {
		return err
	}
	if err := enterCwd(c); err != nil {
		return err
	}
	adjustOOMScore(c)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("switch core dumps off: %w", err)
	}
	if c.MaxProcesses > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: c.MaxProcesses, Max: c.MaxProcesses}); err != nil {
			return fmt.Errorf("limit processes: %w", err)
		}
	}
	if err := becomeUser(c); err != nil {
		return err
	}
	if joined {
		// The process that waits for the command is killed when its time is up; a change of user would undo this.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("end with the waiting process: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	program, err := lookPath(c.Args[0], c.Env)
	if err != nil {
		return err
	}
	if err := installFilter(); err != nil {
		return fmt.Errorf("install the seccomp filter: %w", err)
	}
	if err := syscall.Exec(program, c.Args, c.Env); err != nil {
		return fmt.Errorf("exec %q: %w", program, err)
	}
	return nil
}

func adjustOOMScore(c *launch.Container) {
	if c.OOMScoreAdj != 0 {
		// Lowering is not allowed everywhere; then the inherited score stays.
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte(fmt.Sprint(c.OOMScoreAdj)), 0)
	}
}

// enterCwd makes a missing working directory, as container runtimes do.
func enterCwd(c *launch.Container) error {
	cwd := c.Cwd
	if cwd == "" {
		cwd = "/"
	}
	err := unix.Chdir(cwd)
	if errors.Is(err, unix.ENOENT) {
		if err = os.MkdirAll(cwd, 0o755); err == nil {
			_ = os.Chown(cwd, int(c.UID), int(c.GID)) // where only one id exists it is the owner already
			err = unix.Chdir(cwd)
		}
	}
	if err != nil {
		return fmt.Errorf("enter the working directory %q: %w", cwd, err)
	}
	return nil
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	search := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
		}
	}
	for _, dir := range strings.Split(search, ":") {
		p := path.Join("/", dir, name)
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("exec %q: no such program in PATH (%s): %w", name, search, unix.ENOENT)
}
