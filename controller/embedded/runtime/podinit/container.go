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

// stageEnv keeps the Go runtime of a stage, which lives for a millisecond, from starting more than it needs.
var stageEnv = []string{"GOGC=off", "GOMAXPROCS=1"}

type container struct {
	process *os.Process
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
	s.starting.Lock()
	err = s.ensureVolumes(r.MemoryVolumes)
	s.starting.Unlock()
	if err != nil {
		log.close()
		return err
	}

	st, err := launchStage([]string{self, "container"}, r.SingleID, log, append([]int{fds[0]}, fds[3:]...))
	if err != nil {
		log.close()
		return err
	}
	c := &container{process: st.process, state: launch.State{ID: r.ID, PID: st.process.Pid, Note: r.Note, Started: time.Now().UnixNano()}}
	s.mu.Lock()
	s.containers[r.ID] = c
	s.mu.Unlock()
	go s.reap(c, log, st)
	return nil
}

func (s *server) reap(c *container, log *logWriter, st *stage) {
	// The process was made by this launcher and is waited for here only, so Wait cannot fail.
	status, _ := c.process.Wait()
	// All processes of the PID namespace are dead now, so both pipes end.
	st.drained.Wait()
	log.close()
	s.mu.Lock()
	c.state = exited(c.state, status)
	state := c.state
	s.mu.Unlock()
	s.broadcast(state)
}

func exited(state launch.State, status *os.ProcessState) launch.State {
	state.Exited = true
	state.Ended = time.Now().UnixNano()
	if ws, ok := status.Sys().(syscall.WaitStatus); ok {
		if ws.Signaled() {
			state.Signal = int(ws.Signal())
			state.Code = 128 + state.Signal
		} else {
			state.Code = ws.ExitStatus()
		}
	}
	return state
}

// stage is a started stage. drained is done when both output pipes have ended.
type stage struct {
	process *os.Process
	pipes   [2]*os.File
	drained sync.WaitGroup
}

// launchStage starts a stage of this binary in new namespaces and waits until it has become the program it was told
// to run, or has failed. files[0] is the spec.
func launchStage(args []string, single *launch.ID, log *logWriter, files []int) (*stage, error) {
	attr := &syscall.SysProcAttr{Setsid: true}
	if args[1] == "container" {
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
	var process *os.Process
	if err == nil {
		process, err = os.StartProcess(self, args, &os.ProcAttr{Env: stageEnv, Files: pass, Sys: attr})
	}
	for _, f := range append(owned, statusW, outW, errW) {
		f.Close()
	}
	if err != nil {
		outR.Close()
		errR.Close()
		return nil, fmt.Errorf("start a container process: %w", err)
	}
	st := &stage{process: process, pipes: [2]*os.File{outR, errR}}
	st.drained.Go(func() { log.drain("stdout", outR) })
	st.drained.Go(func() { log.drain("stderr", errR) })

	problem, _ := io.ReadAll(io.LimitReader(statusR, 16<<10))
	if len(problem) == 0 {
		return st, nil
	}
	_ = process.Kill() // it exits by itself; this bounds the wait
	_, _ = process.Wait()
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
	st, err := launchStage(args, nil, log, append([]int{fds[0]}, fds[3:]...))
	if err != nil {
		return launch.State{}, err
	}
	// The stage leads a process group, which everything it starts belongs to unless it leaves on purpose.
	group := -st.process.Pid
	timer := time.AfterFunc(time.Duration(r.Signal)*time.Second, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
	defer timer.Stop()
	status, err := st.process.Wait()
	if err != nil {
		return launch.State{}, err
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	for {
		// Whoever outlived the stage has become a child of this process.
		if _, err := syscall.Wait4(group, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	// A process that left the group may hold the pipes open; its output does not count any more.
	cut := time.AfterFunc(time.Second, func() {
		for _, pipe := range st.pipes {
			pipe.Close()
		}
	})
	st.drained.Wait()
	cut.Stop()
	return exited(launch.State{ID: r.ID, PID: st.process.Pid}, status), nil
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
