package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

const (
	socketName = "control.sock"
	recordName = "process.json"
	// initGroup is the control group of the launcher; a container cannot be called so (names have no dots).
	initGroup = "init.0"
)

// pod is a running sandbox of the built-in runtime.
type pod struct {
	runtime *Runtime
	config  runtime.PodConfig
	process identity
	client  *client
	exits   chan runtime.ContainerState
	// hold is the end of a pipe that the launcher watches: it exits when the pipe closes before a word. nil for a sandbox
	// that was taken over.
	hold *os.File
}

// StartPod implements runtime.Runtime.
func (r *Runtime) StartPod(ctx context.Context, c runtime.PodConfig) (_ runtime.Pod, err error) {
	containers := filepath.Join(c.Dir, "containers")
	if err := os.MkdirAll(containers, 0o700); err != nil {
		return nil, err
	}
	spread(containers)
	listener, err := listen(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("make the control socket: %w", err)
	}
	defer listener.Close()
	process, hold, err := r.launch(c, listener)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			hold.Close()
			process.kill()
			_ = r.cgroups.RemoveAll(context.WithoutCancel(ctx), c.UID)
		}
	}()
	if err := process.save(filepath.Join(c.Dir, recordName)); err != nil {
		return nil, err
	}
	g, err := r.cgroups.Create(c.UID+"/"+initGroup, runtime.Limits{})
	if err != nil {
		return nil, err
	}
	if err := g.Add(process.PID); err != nil {
		return nil, err
	}
	p, err := r.connect(c, process)
	if err != nil {
		return nil, err
	}
	p.hold = hold
	return p, nil
}

// topDirectory is FS_TOPDIR_FL of linux/fs.h.
const topDirectory = 0x20000

// spread asks ext4 to put the directories made in dir far apart on the disk. Without a journal it does not take the
// place of a file deleted within the last minutes, and looks at all such places around the directory one by one
// whenever it makes a file: where containers come and go side by side, that costs more than all else about them. Other
// file systems do not know the flag, and do without.
func spread(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	if flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags|topDirectory)
	}
}

// launch starts the first process of a Pod and waits until it is ready. The process ends when hold closes, as it does
// with this process, unless something was written to it.
func (r *Runtime) launch(c runtime.PodConfig, listener *os.File) (_ identity, _ *os.File, err error) {
	readyR, readyW, err := os.Pipe()
	if err != nil {
		return identity{}, nil, err
	}
	defer readyR.Close()
	defer readyW.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return identity{}, nil, err
	}
	defer null.Close()
	watched, hold, err := os.Pipe()
	if err != nil {
		return identity{}, nil, err
	}
	defer watched.Close()
	defer func() {
		if err != nil {
			hold.Close()
		}
	}()
	attr := &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
			unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: r.ids.Base, Size: r.ids.Size}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: r.ids.Base, Size: r.ids.Size}},
	}
	files := "drop"
	if r.ids.Single() || r.oci != nil {
		files = "keep" // an ordinary user's launcher opens mounts by itself; an OCI runtime is executed from there
	}
	if r.ids.Single() {
		attr.GidMappings[0].HostID = os.Getegid()
	} else {
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{}
	}
	address := ""
	if c.LoopbackOnly {
		address = c.Address
	}
	// By descriptor: the sandbox's user may not be able to walk to the launcher's path.
	process, err := os.StartProcess("/proc/self/fd/"+strconv.Itoa(int(r.launcher.Fd())),
		[]string{"sandbox-init", "pod", c.Hostname, address, files},
		&os.ProcAttr{Env: []string{"GOMAXPROCS=1", "GOGC=10"}, Files: []*os.File{null, null, null, listener, readyW, watched}, Sys: attr})
	readyW.Close()
	if err != nil {
		return identity{}, nil, fmt.Errorf("start a sandbox: %w%s", err, namespaceHint(err))
	}
	go func() { _, _ = process.Wait() }()
	problem, err := io.ReadAll(io.LimitReader(readyR, 4096))
	if err == nil && len(problem) > 0 {
		err = errors.New(string(problem))
	}
	id := identify(process.Pid)
	if err != nil {
		id.kill()
		return identity{}, nil, fmt.Errorf("prepare a sandbox: %w", err)
	}
	return id, hold, nil
}

func namespaceHint(err error) string {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return ""
	}
	if v, readErr := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); readErr == nil && len(v) > 0 && v[0] == '1' {
		return "; this machine's AppArmor refuses user namespaces to ordinary users: run as root, or set sysctl kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return "; the machine refuses new namespaces (inside another container it must be started with them allowed)"
}

// listen binds the control socket. The path goes through a descriptor, since socket addresses are short.
func listen(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), socketName)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socketPath(d)}); err != nil {
		f.Close()
		return nil, err
	}
	if err := unix.Listen(fd, 8); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func socketPath(dir *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + socketName
}

// AdoptPod implements runtime.Runtime.
func (r *Runtime) AdoptPod(_ context.Context, c runtime.PodConfig) (runtime.Pod, error) {
	process, err := load(filepath.Join(c.Dir, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, runtime.ErrGone
	}
	if err != nil {
		return nil, err
	}
	p, err := r.connect(c, process)
	if err != nil {
		process.kill()
		return nil, fmt.Errorf("%w: %w", runtime.ErrGone, err)
	}
	return p, nil
}

func (r *Runtime) connect(c runtime.PodConfig, process identity) (*pod, error) {
	d, err := os.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socketPath(d)}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to the sandbox: %w", err)
	}
	conn, err := launch.NewConn(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	p := &pod{
		runtime: r, config: c, process: process, exits: make(chan runtime.ContainerState, 256)}
	p.client = newClient(conn, func(s launch.State) { p.exits <- p.state(s) })
	return p, nil
}

// PID implements runtime.Pod.
func (p *pod) PID() int { return p.process.PID }

// Persist implements runtime.Pod.
func (p *pod) Persist() error {
	if _, err := p.hold.Write([]byte{1}); err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrGone, err)
	}
	return p.hold.Close()
}

// Exits implements runtime.Pod.
func (p *pod) Exits() <-chan runtime.ContainerState { return p.exits }

// Done implements runtime.Pod.
func (p *pod) Done() <-chan struct{} { return p.client.done }

// Release implements runtime.Pod.
func (p *pod) Release() {
	p.client.close()
	p.hold.Close()
}

// Stop implements runtime.Pod.
func (p *pod) Stop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	p.process.kill()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case <-p.client.done:
	case <-ctx.Done():
	}
	p.Release()
	err := p.runtime.cgroups.RemoveAll(ctx, p.config.UID)
	for _, name := range []string{"containers", socketName, recordName} {
		if rmErr := RemoveTree(filepath.Join(p.config.Dir, name)); rmErr != nil {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// Dial implements runtime.Pod.
func (p *pod) Dial(ctx context.Context, port int) (net.Conn, error) {
	_, fds, err := p.client.call(ctx, launch.Request{Op: launch.OpDial, Port: port, Address: p.config.Address})
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: podAddr(net.JoinHostPort(p.config.Address, strconv.Itoa(port))), Err: err}
	}
	if len(fds) != 1 {
		launch.CloseAll(fds)
		return nil, fmt.Errorf("the sandbox answered with %d sockets instead of one", len(fds))
	}
	f := os.NewFile(uintptr(fds[0]), "connection")
	defer f.Close()
	return net.FileConn(f)
}

type podAddr string

func (podAddr) Network() string  { return "tcp" }
func (a podAddr) String() string { return string(a) }

// WipeMemoryVolumes implements runtime.Pod.
func (p *pod) WipeMemoryVolumes(ctx context.Context) error {
	_, _, err := p.client.call(ctx, launch.Request{Op: launch.OpWipe})
	return err
}

// Signal implements runtime.Pod.
func (p *pod) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	_, _, err := p.client.call(ctx, launch.Request{Op: launch.OpSignal, ID: id, Signal: int(sig)})
	return err
}

// Containers implements runtime.Pod.
func (p *pod) Containers(ctx context.Context) ([]runtime.ContainerState, error) {
	reply, _, err := p.client.call(ctx, launch.Request{Op: launch.OpList})
	if err != nil {
		return nil, err
	}
	var states []runtime.ContainerState
	for _, s := range reply.Containers {
		states = append(states, p.state(s))
	}
	return states, nil
}

func (p *pod) state(s launch.State) runtime.ContainerState {
	state := runtime.ContainerState{
		ID: s.ID, Running: !s.Exited, Code: s.Code, Signal: s.Signal, StartedAt: time.Unix(0, s.Started),
	}
	if s.Exited {
		state.EndedAt = time.Unix(0, s.Ended)
		state.OOMKilled = s.Code == 128+int(syscall.SIGKILL) && p.runtime.cgroups.Find(s.Note.Group).OOMKills() > s.Note.OOMKills
	}
	return state
}

// Remove implements runtime.Pod.
func (p *pod) Remove(ctx context.Context, id string) error {
	_, _, err := p.client.call(ctx, launch.Request{Op: launch.OpForget, ID: id})
	if dir := p.containerDir(id); dirExists(dir) {
		p.runtime.removeInBackground(dir)
	}
	return err
}

func dirExists(dir string) bool {
	_, err := os.Lstat(dir)
	return err == nil
}

func (p *pod) containerDir(id string) string { return containerDir(p.config.Dir, id) }

// LogFiles implements runtime.Pod.
func (p *pod) LogFiles(id string) [2]string {
	dir := p.containerDir(id)
	return [2]string{filepath.Join(dir, "0.log"), filepath.Join(dir, "1.log")}
}
