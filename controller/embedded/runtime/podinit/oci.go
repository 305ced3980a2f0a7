package podinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// maxState bounds, in bytes, what an OCI runtime keeps about the containers of a Pod.
const maxState = 16 << 20

// maxSaid bounds the messages of a runtime that an error repeats: the cause is among the first.
const maxSaid = 4

// The files of one call of an OCI runtime.
const (
	pidFile = "pid"
	logFile = "log"
)

// stateFile is a file of one call as the runtime sees it; stateFileHere is where the launcher finds it.
func stateFile(name, file string) string { return launch.StateDir + "/" + name + "." + file }

func stateFileHere(name, file string) string {
	return path.Join(launch.MemoryVolumeDir, launch.StateVolume, name+"."+file)
}

// runtimeArgs are those of a stage that becomes an OCI runtime. name tells the files of this call from others'.
func runtimeArgs(r *launch.OCIRuntime, name string, command ...string) []string {
	return slices.Concat([]string{self, stageOfRuntime, r.Program}, r.Flags,
		[]string{"--log=" + stateFile(name, logFile), "--log-format=json"}, command)
}

// detached waits for the runtime that started a container, and puts the container's first process in its place.
func (s *server) detached(r launch.Request, st *stage) error {
	if status := <-st.child.ended; status != 0 {
		st.drained.Wait()
		return runtimeError(r.Runtime, r.ID, status)
	}
	pid, err := readPID(stateFileHere(r.ID, pidFile))
	if err == nil {
		st.child, err = s.children.adopt(pid)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s does not say which process it started: %w", path.Base(r.Runtime.Program), err),
			s.runtimeCommand(r.Runtime, r.ID, "delete", "--force", r.ID))
	}
	return nil
}

func readPID(file string) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err == nil && pid <= 1 {
		err = fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	return pid, err
}

// runtimeError says in the runtime's own words why a call has failed.
func runtimeError(r *launch.OCIRuntime, name string, status syscall.WaitStatus) error {
	file, err := os.Open(stateFileHere(name, logFile))
	if err == nil {
		defer file.Close()
	}
	var said []string
	for entries := json.NewDecoder(file); err == nil && len(said) < maxSaid; {
		var entry struct{ Level, Msg string }
		if err = entries.Decode(&entry); err == nil && entry.Level == "error" && !slices.Contains(said, entry.Msg) {
			said = append(said, entry.Msg)
		}
	}
	if len(said) == 0 {
		said = append(said, fmt.Sprintf("it ended with exit code %d", exited(launch.State{}, status).Code))
	}
	return fmt.Errorf("%s: %s", path.Base(r.Program), strings.Join(said, "; "))
}

// runtimeCommand calls the runtime about a container and waits for it.
func (s *server) runtimeCommand(r *launch.OCIRuntime, name string, command ...string) error {
	spec, err := launch.WriteSpec(launch.Container{})
	if err != nil {
		return err
	}
	defer unix.Close(spec)
	st, err := s.launchStage(runtimeArgs(r, name, command...), nil, &logWriter{}, []int{spec})
	if err != nil {
		return err
	}
	status := <-st.child.ended
	st.drained.Wait()
	if status != 0 {
		return runtimeError(r, name, status)
	}
	return nil
}

// forgetBundle removes what the runtime keeps about an ended container. What it cannot remove goes with the Pod.
func (s *server) forgetBundle(c *container) {
	_ = s.runtimeCommand(c.runtime, c.state.ID, "delete", "--force", c.state.ID)
	removeStateFiles(c.state.ID)
}

func removeStateFiles(name string) {
	_ = os.Remove(stateFileHere(name, pidFile))
	_ = os.Remove(stateFileHere(name, logFile))
}

// runtimeExec returns the stage of a command in a container, and what kills the command. name is that of its files.
func (s *server) runtimeExec(c *container) (name string, args []string, kill func()) {
	name = fmt.Sprintf("%s.%d", c.state.ID, s.execs.Add(1))
	option := "--pid-file="
	if c.runtime.OwnPIDs {
		option = "--internal-pid-file="
	}
	args = runtimeArgs(c.runtime, name, "exec", option+stateFile(name, pidFile), "--process="+bundleFile, c.state.ID)
	return name, args, func() {
		pid, err := readPID(stateFileHere(name, pidFile))
		switch {
		case err != nil: // it has not begun
		case c.runtime.OwnPIDs:
			_ = s.runtimeCommand(c.runtime, name, "kill", "--pid="+strconv.Itoa(pid), c.state.ID, "KILL")
		default:
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
}

// bundleFile describes the container, or the command in one.
const bundleFile = launch.BundleDir + "/config.json"

// stageRuntime shows an OCI runtime what it needs, and becomes it.
func stageRuntime(c *launch.Container, command []string) error {
	// The mounts are opened in the launcher's tree, and attached in the runtime's.
	var mounts []launch.Mount
	if c.Root.Kind != "" {
		mounts = slices.Concat([]launch.Mount{c.Root}, c.Mounts, c.Volumes)
	}
	next := filesFD
	fds := make([]int, len(mounts))
	for i, m := range mounts {
		var err error
		if fds[i], err = openMount(m, &next); err != nil {
			return err
		}
	}
	if err := enterCgroups(c, next); err != nil {
		return err
	}
	if err := enterMachine(); err != nil {
		return err
	}
	for _, dir := range []string{launch.BundleDir, launch.RootDir, launch.VolumeDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for i, m := range mounts {
		var err error
		switch {
		case i == 0:
			err = unix.MoveMount(fds[0], "", unix.AT_FDCWD, launch.RootDir, unix.MOVE_MOUNT_F_EMPTY_PATH)
		case i <= len(c.Mounts):
			err = attach(fds[0], fds[i], m)
		default:
			m.Target = path.Join(launch.VolumeDir, strconv.Itoa(i-1-len(c.Mounts)))
			err = attach(unix.AT_FDCWD, fds[i], m)
		}
		if err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.Kind, m.Target, err)
		}
	}
	// Inherited by all that the runtime starts, even where the container ends before the runtime could set it.
	adjustOOMScore(c)
	if err := os.WriteFile(bundleFile, c.OCI, 0o600); err != nil {
		return err
	}
	if err := syscall.Exec(command[0], command, []string{"PATH=" + defaultPath}); err != nil {
		return fmt.Errorf("exec %q: %w", command[0], err)
	}
	return nil
}

// enterMachine makes the machine's file tree, read-only, the root of this stage: OCI runtimes want their libraries.
// On top come /proc of the Pod, control groups that cannot be written (limits are set by then), and a /run with nothing
// of the machine's services in it.
func enterMachine() error {
	machine, err := launch.Mount{Kind: launch.Bind, Source: "/", Target: "/", ReadOnly: true, Exec: true, Device: true}.Open(launch.HostPrefix)
	if err != nil {
		return err
	}
	if err := unix.MoveMount(machine, "", unix.AT_FDCWD, rootDir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach the machine's files: %w", err)
	}
	for _, m := range []launch.Mount{
		{Kind: launch.Proc, Target: "/proc"},
		{Kind: launch.Sysfs, Target: "/sys", ReadOnly: true, Optional: true},
		{Kind: launch.Cgroup2, Target: "/sys/fs/cgroup", ReadOnly: true, Optional: true},
		{Kind: launch.Tmpfs, Target: "/run", Options: map[string]string{"mode": "755"}},
		{Kind: launch.Memory, Source: launch.StateVolume, Target: launch.StateDir},
	} {
		fd, err := m.Open("")
		if err != nil && m.Optional {
			continue
		}
		if err == nil {
			err = attach(machine, fd, m)
		}
		if err != nil {
			return fmt.Errorf("mount %s on %s for the OCI runtime: %w", m.Kind, m.Target, err)
		}
		_ = unix.Close(fd)
	}
	return enterRoot()
}
