package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"navix.sh/agentbox/envd/reaper"
	spec "navix.sh/agentbox/envd/spec/process"
)

// retention is how long the end of a process can still be asked for.
const retention = 30 * time.Second

// killWait bounds the wait for killed processes to disappear.
const killWait = 2 * time.Second

var errShuttingDown = errors.New("envd is shutting down")

// Manager owns every process that clients started, independently of the requests that started them.
type Manager struct {
	reaper *reaper.Reaper
	groups func() *groups

	mu      sync.Mutex
	live    map[int]*process
	ended   map[int]*retained
	left    []*group // of ended commands whose background children may still run
	closed  bool
	running sync.WaitGroup
}

// retained is an ended process that late subscribers may still ask for.
type retained struct {
	*process
	forget *time.Timer
}

// NewManager starts processes through r.
func NewManager(r *reaper.Reaper) *Manager {
	return &Manager{reaper: r, groups: sync.OnceValue(findGroups), live: map[int]*process{}, ended: map[int]*retained{}}
}

// launch is a start request, checked and resolved.
type launch struct {
	command
	config   *spec.ProcessConfig
	tag      *string
	terminal *spec.PTY
	stdin    bool
	// deadline kills the process; zero is none.
	deadline time.Time
}

// start runs a command. The subscriber gets its output from the first byte and must leave.
func (m *Manager) start(l launch) (*process, *subscriber, error) {
	p := &process{config: l.config, tag: l.tag, out: newOutput(), mark: newMark(l.user)}
	l.env = p.mark.in(l.env)
	ends, err := p.open(l)
	if err != nil {
		return nil, nil, err
	}
	attr := l.attributes(ends.child, l.terminal != nil)
	group, opened := m.groups().enter(attr)
	err = m.spawn(p, l, attr)
	closeAll(append(ends.child, opened))
	if err != nil {
		ends.closeParents()
		if group != nil {
			group.remove()
		}
		return nil, nil, err
	}
	p.group = group
	raiseOOMScore(p.child.Pid)
	if !l.deadline.IsZero() {
		p.deadline = time.AfterFunc(time.Until(l.deadline), func() {
			p.expired.Store(true)
			_ = p.kill()
		})
	}
	subscription := p.out.subscribe()
	go func() {
		defer m.running.Done()
		p.run(ends.streams, func() { m.running.Add(1) }, m.running.Done)
		m.retire(p)
	}()
	return p, subscription, nil
}

// spawn starts the process and enters it among the live, unless envd is closing.
func (m *Manager) spawn(p *process, l launch, attr *syscall.ProcAttr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errShuttingDown
	}
	child, err := m.reaper.Spawn(l.path, l.argv, attr)
	if err != nil {
		return &os.PathError{Op: "fork/exec", Path: l.path, Err: err}
	}
	p.child = child
	m.live[child.Pid] = p
	m.running.Add(1)
	return nil
}

func (m *Manager) retire(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid := p.child.Pid
	if m.live[pid] == p {
		delete(m.live, pid)
	}
	if p.group != nil && !p.group.remove() {
		m.left = append(m.left, p.group)
	}
	m.sweep()
	if m.closed {
		return
	}
	if old, found := m.ended[pid]; found {
		old.forget.Stop()
	}
	kept := &retained{process: p}
	kept.forget = time.AfterFunc(retention, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ended[pid] == kept {
			delete(m.ended, pid)
		}
	})
	m.ended[pid] = kept
}

// sweep removes the cgroups that have emptied meanwhile; it needs mu.
func (m *Manager) sweep() {
	var left []*group
	for _, g := range m.left {
		if !g.remove() {
			left = append(left, g)
		}
	}
	m.left = left
}

// Close ends every process and what they left behind: first politely, then, when ctx ends, at once. It returns when
// nothing is left.
func (m *Manager) Close(ctx context.Context) {
	m.mu.Lock()
	m.closed = true
	for pid, kept := range m.ended {
		kept.forget.Stop()
		delete(m.ended, pid)
	}
	m.mu.Unlock()

	gone := make(chan struct{})
	go func() {
		m.running.Wait()
		close(gone)
	}()
	m.signalAll(syscall.SIGTERM)
	select {
	case <-gone:
	case <-ctx.Done():
	}
	m.hurry()
	m.signalAll(syscall.SIGKILL)
	<-gone
	m.awaitOrphans()
}

// hurry lets no process wait for its subscribers any longer.
func (m *Manager) hurry() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.live {
		p.out.hurry()
	}
}

// awaitOrphans waits for adopted processes to go after SIGKILL, and removes the cgroups they were in. A process that
// the kernel holds is not waited for longer than killWait.
func (m *Manager) awaitOrphans() {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	giveUp := time.After(killWait)
	for {
		m.mu.Lock()
		m.sweep()
		left := len(m.left)
		m.mu.Unlock()
		if left == 0 && len(orphans()) == 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-giveUp:
			return
		}
	}
}

// orphans are the processes that envd has adopted, with their descendants.
func orphans() map[int]bool { return tree(os.Getpid(), mark{}) }

func (m *Manager) signalAll(sig syscall.Signal) {
	m.mu.Lock()
	live := make([]*process, 0, len(m.live))
	for _, p := range m.live {
		live = append(live, p)
	}
	left := append([]*group(nil), m.left...)
	m.mu.Unlock()
	for _, p := range live {
		_ = p.signal(sig)
	}
	if sig == syscall.SIGKILL {
		for _, g := range left {
			g.kill()
		}
	}
	signalTree(orphans, sig)
}

// list returns the live processes.
func (m *Manager) list() []*process {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*process, 0, len(m.live))
	for _, p := range m.live {
		if !p.child.Exited() {
			all = append(all, p)
		}
	}
	return all
}

// find returns the selected live process, or, with late, one that has ended within retention.
func (m *Manager) find(match func(*process) bool, late bool) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.live {
		if match(p) && (late || !p.child.Exited()) {
			return p
		}
	}
	if late {
		for _, kept := range m.ended {
			if match(kept.process) {
				return kept.process
			}
		}
	}
	return nil
}
