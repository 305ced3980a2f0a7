package podinit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// The first descriptors of a container's stage.
const (
	specFD   = 3
	statusFD = 4
	filesFD  = 5
)

const self = "/proc/self/exe"

// The stages that start in namespaces of their own.
const (
	stageOfContainer = "container"
	stageOfRuntime   = "runtime"
)

// stageEnv keeps the Go runtime of a stage, which lives for a millisecond, from starting more than it needs.
var stageEnv = []string{"GOGC=off", "GOMAXPROCS=1"}

type container struct {
	child   *child
	runtime *launch.OCIRuntime // nil where the launcher itself started the container
	state   launch.State
}

// start runs a container and returns when its program has been executed.
func (s *server) start(r launch.Request, fds []int) error {
	if len(fds) < 3 {
		return fmt.Errorf("a start takes a spec and two log files, got %d files: %w", len(fds), unix.EINVAL)
	}
	s.mu.Lock()
	_, exists := s.containers[r.ID]
	s.mu.Unlock()
	if exists {
		return fmt.Errorf("container %s exists already: %w", r.ID, unix.EEXIST)
	}
	log, err := newLog(fds[1], fds[2])
	if err != nil {
		return err
	}
	args, volumes := []string{self, stageOfContainer}, r.MemoryVolumes
	if r.Runtime != nil {
		args = runtimeArgs(r.Runtime, r.ID, "run", "--detach", "--pid-file="+stateFile(r.ID, pidFile), "--bundle="+launch.BundleDir, r.ID)
		volumes = append(volumes, launch.MemoryVolume{Name: launch.StateVolume, Size: maxState})
	}
	s.starting.Lock()
	err = s.ensureVolumes(volumes)
	s.starting.Unlock()
	if err != nil {
		log.close()
		return err
	}

	if r.Runtime != nil {
		s.children.expect()
		defer s.children.expected()
	}
	st, err := s.launchStage(args, r.SingleID, log, append([]int{fds[0]}, fds[3:]...))
	if err == nil && r.Runtime != nil {
		err = s.detached(r, st)
	}
	if err != nil {
		log.close()
		return err
	}
	c := &container{child: st.child, runtime: r.Runtime, state: launch.State{ID: r.ID, PID: st.child.Pid, Note: r.Note, Started: time.Now().UnixNano()}}
	s.mu.Lock()
	s.containers[r.ID] = c
	s.mu.Unlock()
	go s.reap(c, log, st)
	return nil
}

func (s *server) reap(c *container, log *logWriter, st *stage) {
	status := <-c.child.ended
	// All processes of the PID namespace are dead now, so both pipes end.
	st.drained.Wait()
	log.close()
	s.mu.Lock()
	c.state = exited(c.state, status)
	state := c.state
	s.mu.Unlock()
	s.broadcast(state)
	if c.runtime != nil {
		s.forgetBundle(c)
	}
}

func exited(state launch.State, status syscall.WaitStatus) launch.State {
	state.Exited = true
	state.Ended = time.Now().UnixNano()
	if status.Signaled() {
		state.Signal = int(status.Signal())
		state.Code = 128 + state.Signal
	} else {
		state.Code = status.ExitStatus()
	}
	return state
}

// stage is a started stage. drained is done when both output pipes have ended.
type stage struct {
	child   *child
	pipes   [2]*os.File
	drained sync.WaitGroup
}

// launchStage starts a stage of this binary in new namespaces and waits until it has become the program it was told
// to run, or has failed. files[0] is the spec.
func (s *server) launchStage(args []string, single *launch.ID, log *logWriter, files []int) (*stage, error) {
	attr := &syscall.SysProcAttr{Setsid: true}
	switch args[1] {
	case stageOfRuntime:
		attr.Cloneflags = unix.CLONE_NEWNS
	case stageOfContainer:
		attr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC
		if single != nil {
			attr.Cloneflags |= unix.CLONE_NEWUSER
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: single.UID, HostID: 0, Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: single.GID, HostID: 0, Size: 1}}
			last := lastCapability()
			for c := 0; c <= last; c++ {
				attr.AmbientCaps = append(attr.AmbientCaps, uintptr(c))
			}
		}
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer statusR.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		statusW.Close()
		return nil, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		statusW.Close()
		outR.Close()
		outW.Close()
		return nil, err
	}
	pass := []*os.File{os.Stdin, outW, errW, nil, statusW}
	// Duplicates belong to this function; the originals are closed by whoever received them.
	var owned []*os.File
	for i, fd := range files {
		dup, dupErr := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if dupErr != nil {
			err = dupErr
			break
		}
		f := os.NewFile(uintptr(dup), "passed")
		owned = append(owned, f)
		if i == 0 {
			pass[specFD] = f
		} else {
			pass = append(pass, f)
		}
	}
	var started *child
	if err == nil {
		started, err = s.children.start(self, args, &os.ProcAttr{Env: stageEnv, Files: pass, Sys: attr})
	}
	for _, f := range append(owned, statusW, outW, errW) {
		f.Close()
	}
	if err != nil {
		outR.Close()
		errR.Close()
		return nil, fmt.Errorf("start a container process: %w", err)
	}
	st := &stage{child: started, pipes: [2]*os.File{outR, errR}}
	st.drained.Go(func() { log.drain("stdout", outR) })
	st.drained.Go(func() { log.drain("stderr", errR) })

	problem, _ := io.ReadAll(io.LimitReader(statusR, 16<<10))
	if len(problem) == 0 {
		return st, nil
	}
	_ = started.Kill() // it exits by itself; this bounds the wait
	<-started.ended
	st.drained.Wait()
	return nil, stageError(string(problem))
}

// exec runs a command inside a container and returns how it ended.
func (s *server) exec(r launch.Request, fds []int) (launch.State, error) {
	if len(fds) < 3 {
		return launch.State{}, fmt.Errorf("an exec takes a spec and two log files, got %d files: %w", len(fds), unix.EINVAL)
	}
	s.mu.Lock()
	c := s.containers[r.ID]
	running := c != nil && !c.state.Exited
	s.mu.Unlock()
	if !running {
		return launch.State{}, fmt.Errorf("container %s is not running: %w", r.ID, unix.ESRCH)
	}
	log, err := newLog(fds[1], fds[2])
	if err != nil {
		return launch.State{}, err
	}
	defer log.close()
	args := []string{self, "join", strconv.Itoa(c.state.PID)}
	kill := func() {}
	if c.runtime != nil {
		var name string
		name, args, kill = s.runtimeExec(c)
		defer removeStateFiles(name)
	}
	st, err := s.launchStage(args, nil, log, append([]int{fds[0]}, fds[3:]...))
	if err != nil {
		return launch.State{}, err
	}
	// The stage leads a process group, which everything it starts belongs to unless it leaves on purpose.
	group := -st.child.Pid
	timer := time.AfterFunc(time.Duration(r.Signal)*time.Second, func() {
		kill()
		_ = syscall.Kill(group, syscall.SIGKILL)
	})
	defer timer.Stop()
	status := <-st.child.ended
	_ = syscall.Kill(group, syscall.SIGKILL)
	// A process that left the group may hold the pipes open; its output does not count any more.
	cut := time.AfterFunc(time.Second, func() {
		for _, pipe := range st.pipes {
			pipe.Close()
		}
	})
	st.drained.Wait()
	cut.Stop()
	return exited(launch.State{ID: r.ID, PID: st.child.Pid}, status), nil
}

// A stage reports a failure as "<errno> <text>".
func stageError(text string) error {
	var code int
	var rest string
	if i := indexSpace(text); i > 0 {
		code, _ = strconv.Atoi(text[:i])
		rest = text[i+1:]
	} else {
		rest = text
	}
	if code == 0 {
		return errors.New(rest)
	}
	return &codedError{text: rest, errno: syscall.Errno(code)}
}

type codedError struct {
	text  string
	errno syscall.Errno
}

func (e *codedError) Error() string { return e.text }
func (e *codedError) Unwrap() error { return e.errno }

func indexSpace(s string) int {
	for i := range len(s) {
		if s[i] == ' ' {
			return i
		}
	}
	return -1
}
