// Package reaper starts child processes and is the only one to wait for them. envd adopts the orphans of its sandbox
// (as PID 1 or as subreaper), so it must collect children that it did not start, and a second waiter would lose the
// exit status of those that it did.
package reaper

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// ErrExited says that the process has ended and cannot be signalled.
var ErrExited = errors.New("the process has already exited")

// Reaper owns the wait queue of this operating-system process; there is at most one.
type Reaper struct {
	mu       sync.Mutex
	children map[int]*Child
	signals  chan os.Signal
	stopped  chan struct{}
	// onExit is told of every collected pid, adopted orphans included.
	onExit func()
}

// Child is a started process.
type Child struct {
	Pid    int
	reaper *Reaper
	done   chan struct{}
	exited bool // guarded by reaper.mu
	status syscall.WaitStatus
}

// Start begins to collect children. onExit, when not nil, is called after each round of collection.
func Start(onExit func()) *Reaper {
	r := &Reaper{
		children: map[int]*Child{},
		signals:  make(chan os.Signal, 1),
		stopped:  make(chan struct{}),
		onExit:   onExit,
	}
	signal.Notify(r.signals, syscall.SIGCHLD)
	go r.run()
	return r
}

// Stop ends the collection. Children that still run are left alone.
func (r *Reaper) Stop() {
	signal.Stop(r.signals)
	close(r.signals)
	<-r.stopped
}

// Spawn starts a process. The error is that of the fork or of the exec.
func (r *Reaper) Spawn(path string, argv []string, attr *syscall.ProcAttr) (*Child, error) {
	r.mu.Lock() // a child that exits at once must be known before it is collected
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	child := &Child{Pid: pid, reaper: r, done: make(chan struct{})}
	r.children[pid] = child
	return child, nil
}

// Done is closed when the process has ended and its status is known.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status is valid once Done is closed.
func (c *Child) Status() syscall.WaitStatus { return c.status }

// Exited says whether the process has ended.
func (c *Child) Exited() bool {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	return c.exited
}

// Guard runs act while the pid certainly still belongs to this process, or answers ErrExited.
func (c *Child) Guard(act func(pid int) error) error {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	if c.exited {
		return ErrExited
	}
	return act(c.Pid)
}

func (r *Reaper) run() {
	defer close(r.stopped)
	for range r.signals {
		r.collect()
	}
}

func (r *Reaper) collect() {
	r.mu.Lock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			break
		}
		child, known := r.children[pid]
		if !known {
			continue // an adopted orphan
		}
		delete(r.children, pid)
		child.exited, child.status = true, status
		close(child.done)
	}
	r.mu.Unlock()
	if r.onExit != nil {
		r.onExit()
	}
}
