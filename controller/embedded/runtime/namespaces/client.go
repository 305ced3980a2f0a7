package namespaces

import (
	"context"
	"fmt"
	"sync"
	"syscall"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// client speaks to a Pod's launcher. Calls are safe for concurrent use.
type client struct {
	conn *launch.Conn
	done chan struct{}

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan answer
	closed  bool
}

type answer struct {
	reply launch.Reply
	fds   []int
}

// newClient starts the reader. onExit is called for every container that ends, one at a time.
func newClient(conn *launch.Conn, onExit func(launch.State)) *client {
	c := &client{conn: conn, done: make(chan struct{}), waiting: map[uint64]chan answer{}}
	go c.read(onExit)
	return c
}

func (c *client) close() { c.conn.Close() }

func (c *client) read(onExit func(launch.State)) {
	for {
		var reply launch.Reply
		fds, err := c.conn.Receive(&reply)
		if err != nil {
			break
		}
		if reply.Op == launch.OpExit {
			launch.CloseAll(fds)
			for _, s := range reply.Containers {
				onExit(s)
			}
			continue
		}
		c.mu.Lock()
		wait := c.waiting[reply.Seq]
		delete(c.waiting, reply.Seq)
		c.mu.Unlock()
		if wait == nil {
			launch.CloseAll(fds) // the caller has given up
			continue
		}
		wait <- answer{reply, fds}
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.conn.Close()
	close(c.done)
}

// call sends a request and waits for its answer.
func (c *client) call(ctx context.Context, r launch.Request, fds ...int) (launch.Reply, []int, error) {
	wait := make(chan answer, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return launch.Reply{}, nil, runtime.ErrGone
	}
	c.seq++
	r.Seq = c.seq
	c.waiting[r.Seq] = wait
	c.mu.Unlock()

	err := c.conn.Send(r, fds...)
	if err == nil {
		select {
		case a := <-wait:
			if a.reply.Error != "" {
				launch.CloseAll(a.fds)
				return launch.Reply{}, nil, &remoteError{text: a.reply.Error, errno: syscall.Errno(a.reply.Errno)}
			}
			return a.reply, a.fds, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.done:
			err = runtime.ErrGone
		}
	} else {
		err = fmt.Errorf("%w: %w", runtime.ErrGone, err)
	}
	c.mu.Lock()
	delete(c.waiting, r.Seq)
	c.mu.Unlock()
	select {
	case a := <-wait: // it came in between
		launch.CloseAll(a.fds)
	default:
	}
	return launch.Reply{}, nil, err
}

// remoteError is a failure inside the Pod with its system error.
type remoteError struct {
	text  string
	errno syscall.Errno
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}
