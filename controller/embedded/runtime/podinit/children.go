package podinit

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// children waits for every process that ends as a child of the launcher: those it has started, and those whose parents
// have ended before them. An OCI runtime leaves a container's first process to the launcher that way.
type children struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
	// expecting counts the starts that will ask for a process which they learn of later; ended keeps who ends until then.
	expecting int
	ended     map[int]syscall.WaitStatus
}

// child is a process whose end is sent to ended.
type child struct {
	*os.Process
	ended chan syscall.WaitStatus
}

func newChildren() *children {
	c := &children{waiting: map[int]chan syscall.WaitStatus{}, ended: map[int]syscall.WaitStatus{}}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	go func() {
		for range died {
			c.reap()
		}
	}()
	return c
}

func (c *children) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		c.mu.Lock()
		if wait := c.waiting[pid]; wait != nil {
			delete(c.waiting, pid)
			wait <- status
		} else if c.expecting > 0 {
			c.ended[pid] = status
		}
		c.mu.Unlock()
	}
}

// start starts a process. The lock is held until its number is known, so that its end is not taken for a stranger's.
func (c *children) start(name string, args []string, attr *os.ProcAttr) (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := os.StartProcess(name, args, attr)
	if err != nil {
		return nil, err
	}
	return c.wait(p), nil
}

func (c *children) wait(p *os.Process) *child {
	ended := make(chan syscall.WaitStatus, 1)
	c.waiting[p.Pid] = ended
	return &child{p, ended}
}

// expect announces that adopt will be called; expected takes it back.
func (c *children) expect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expecting++
}

func (c *children) expected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expecting--; c.expecting == 0 {
		clear(c.ended)
	}
}

// adopt returns a process that became a child of the launcher after expect, whether or not it still runs.
func (c *children) adopt(pid int) (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	adopted := c.wait(p)
	if status, ok := c.ended[pid]; ok {
		delete(c.ended, pid)
		delete(c.waiting, pid)
		adopted.ended <- status
	}
	return adopted, nil
}
