package podinit

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// server answers the agent. More than one connection may be open: a restarted agent may come before the old one's
// socket is seen to be closed.
type server struct {
	mu         sync.Mutex
	conns      map[*launch.Conn]bool
	containers map[string]*container
	// starting serialises the part of a start that shares the launcher's state (memory volumes).
	starting sync.Mutex
	// starts is held for reading by the starts in flight.
	starts   sync.RWMutex
	volumes  map[string]bool
	children *children
	execs    atomic.Uint64
}

func newServer() *server {
	return &server{conns: map[*launch.Conn]bool{}, containers: map[string]*container{}, volumes: map[string]bool{}, children: newChildren()}
}

func (s *server) accept(listener int) error {
	if err := unix.SetNonblock(listener, true); err != nil {
		return err
	}
	file := os.NewFile(uintptr(listener), "listener")
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var fd int
		var acceptErr error
		if err := raw.Read(func(l uintptr) bool {
			fd, _, acceptErr = unix.Accept4(int(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(acceptErr, unix.EAGAIN)
		}); err != nil {
			return err
		}
		if errors.Is(acceptErr, unix.EINTR) || errors.Is(acceptErr, unix.ECONNABORTED) {
			continue
		}
		if acceptErr != nil {
			return acceptErr
		}
		conn, err := launch.NewConn(fd)
		if err != nil {
			unix.Close(fd)
			continue
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		go s.serve(conn)
	}
}

func (s *server) serve(conn *launch.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		conn.Close()
	}()
	for {
		var r launch.Request
		fds, err := conn.Receive(&r)
		if err != nil {
			return
		}
		if r.Op == launch.OpStart {
			s.starts.RLock() // before another request is read
		}
		// Each request has its own goroutine: a slow start or dial must not delay a kill.
		go s.answer(conn, r, fds)
	}
}

func (s *server) answer(conn *launch.Conn, r launch.Request, fds []int) {
	defer launch.CloseAll(fds)
	reply := launch.Reply{Seq: r.Seq}
	pass := -1
	var err error
	switch r.Op {
	case launch.OpStart:
		err = s.start(r, fds)
		s.starts.RUnlock()
	case launch.OpExec:
		var state launch.State
		state, err = s.exec(r, fds)
		reply.Containers = []launch.State{state}
	case launch.OpSignal:
		err = s.signal(r.ID, syscall.Signal(r.Signal))
	case launch.OpForget:
		s.forget(r.ID)
	case launch.OpList:
		reply.Containers = s.list()
	case launch.OpDial:
		pass, err = dial(r.Port, r.Address)
	case launch.OpWipe:
		err = s.wipeVolumes()
	default:
		err = fmt.Errorf("unknown operation %q: the controller and sandbox-init are of different builds", r.Op)
	}
	if err != nil {
		reply.Error = err.Error()
		var errno syscall.Errno
		if errors.As(err, &errno) {
			reply.Errno = int(errno)
		}
	}
	if pass >= 0 {
		defer unix.Close(pass)
		_ = conn.Send(reply, pass) // a broken connection is noticed by its reader
		return
	}
	_ = conn.Send(reply)
}

func (s *server) broadcast(state launch.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Send(launch.Reply{Op: launch.OpExit, Containers: []launch.State{state}})
	}
}

// list waits for the starts that an agent had asked for before it died: the next one would take their containers for
// never started.
func (s *server) list() []launch.State {
	s.starts.Lock()
	defer s.starts.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	states := []launch.State{}
	for _, c := range s.containers {
		states = append(states, c.state)
	}
	return states
}

// forget drops an ended container; of a running one it drops nothing.
func (s *server) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil && c.state.Exited {
		delete(s.containers, id)
	}
}

// signal reaches the first process of a container. SIGKILL to it ends the container's whole PID namespace.
func (s *server) signal(id string, sig syscall.Signal) error {
	s.mu.Lock()
	c := s.containers[id]
	ended := c != nil && c.state.Exited
	s.mu.Unlock()
	switch {
	case c == nil:
		return fmt.Errorf("no container %s: %w", id, unix.ESRCH)
	case ended:
		return nil
	case c.runtime != nil && sig != syscall.SIGKILL:
		return s.runtimeCommand(c.runtime, id, "kill", id, strconv.Itoa(int(sig)))
	}
	if err := c.child.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (s *server) ensureVolumes(volumes []launch.MemoryVolume) error {
	for _, v := range volumes {
		if s.volumes[v.Name] {
			continue
		}
		dir := launch.MemoryVolumeDir + "/" + v.Name
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		options := "mode=1777"
		if v.Size > 0 {
			options += fmt.Sprintf(",size=%d", v.Size)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("memory volume %s: %w", v.Name, err)
		}
		s.volumes[v.Name] = true
	}
	return nil
}

func (s *server) wipeVolumes() error {
	s.starting.Lock()
	defer s.starting.Unlock()
	for name := range s.volumes {
		if err := unix.Unmount(launch.MemoryVolumeDir+"/"+name, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("memory volume %s: %w", name, err)
		}
		delete(s.volumes, name)
	}
	return nil
}
