package claim

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/record"
)

// Get returns a live sandbox; finished true also looks at the records.
func (m *Manager) Get(_ context.Context, id string, finished bool) (Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sb := m.sandboxes[id]; sb != nil && (finished || !sb.ending) {
		return sb.snapshot(), nil
	}
	if finished {
		if r, ok := m.records.Get(id); ok {
			return fromRecord(&r), nil
		}
	}
	return Sandbox{}, noSandbox(id)
}

func noSandbox(id string) error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("sandbox %q not found", id), Hint: "it may have ended; list the sandboxes to see what is there"}
}

// List returns matches, newest claim first.
func (m *Manager) List(_ context.Context, f Filter) ([]Sandbox, error) {
	var out []Sandbox
	m.mu.Lock()
	for _, sb := range m.sandboxes {
		if sb.ending && !f.Finished && !slices.Contains(f.Statuses, StatusStopping) {
			continue
		}
		if s := sb.snapshot(); f.matches(&s) {
			out = append(out, s)
		}
	}
	if f.Finished {
		for _, r := range m.records.List(func(r *record.Record) bool {
			if m.sandboxes[r.SandboxID] != nil {
				return false
			}
			s := fromRecord(r)
			return f.matches(&s)
		}) {
			out = append(out, fromRecord(&r))
		}
	}
	m.mu.Unlock()
	slices.SortFunc(out, func(a, b Sandbox) int {
		if c := b.ClaimedAt.Compare(a.ClaimedAt); c != 0 {
			return c
		}
		if a.ID > b.ID {
			return -1
		}
		return 1
	})
	return out, nil
}

func (f *Filter) matches(s *Sandbox) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	if !is(f.Owner.Namespace, s.Owner.Namespace) || !is(f.Owner.Team, s.Owner.Team) || !is(f.Owner.User, s.Owner.User) ||
		!is(f.Env, s.Env) || !is(f.Pool, s.Pool) {
		return false
	}
	if len(f.Statuses) > 0 && !slices.Contains(f.Statuses, s.Status) {
		return false
	}
	for k, v := range f.Metadata {
		if have, ok := s.Metadata[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Kill ends a sandbox. It returns once nothing routes to it and that fact is durable.
func (m *Manager) Kill(ctx context.Context, id string, why Reason) error {
	e := ending{status: StatusCompleted}
	m.mu.Lock()
	sb := m.sandboxes[id]
	if sb == nil {
		m.mu.Unlock()
		return noSandbox(id)
	}
	select {
	case <-sb.stopped:
		m.mu.Unlock()
		return noSandbox(id)
	default:
	}
	if why == ReasonCanceled || sb.info.StartedAt.IsZero() {
		e.status = StatusCanceled
	}
	m.endLocked(sb, e)
	m.mu.Unlock()
	select {
	case <-sb.stopped:
		return nil
	case <-ctx.Done():
		return &Error{Code: CodeCanceled, Message: "the sandbox is ending, but that is not recorded yet", Err: context.Cause(ctx)}
	case <-m.life.Done():
		return &Error{Code: CodeInternal, Message: "the controller is stopping", Hint: "try again", RetryAfter: time.Second}
	}
}

// SetTimeout makes the sandbox end d from now (idle mode: after d without activity).
func (m *Manager) SetTimeout(ctx context.Context, id string, d time.Duration) (Sandbox, error) {
	if d <= 0 {
		return Sandbox{}, &Error{Code: CodeInvalid, Message: "a timeout must be positive", Hint: "kill the sandbox to end it now"}
	}
	return m.retime(ctx, id, func(s *Sandbox, now time.Time) bool {
		s.Timeout = d
		if s.TimeoutMode == TimeoutAbsolute {
			s.EndAt = now.Add(d)
		}
		return true
	})
}

// Extend makes the sandbox end no earlier than d from now; it never shortens.
func (m *Manager) Extend(ctx context.Context, id string, d time.Duration) (Sandbox, error) {
	if d < 0 {
		return Sandbox{}, &Error{Code: CodeInvalid, Message: "an extension must not be negative"}
	}
	return m.retime(ctx, id, func(s *Sandbox, now time.Time) bool {
		if s.TimeoutMode == TimeoutAbsolute {
			if s.EndAt.IsZero() || !s.EndAt.Before(now.Add(d)) {
				return false
			}
			s.EndAt, s.Timeout = now.Add(d), d
			return true
		}
		if s.Timeout == 0 || s.Timeout >= d {
			return false
		}
		s.Timeout = d
		return true
	})
}

// retime changes when a sandbox ends, in memory first, so that it cannot end while the change is being written.
func (m *Manager) retime(ctx context.Context, id string, change func(*Sandbox, time.Time) bool) (Sandbox, error) {
	m.mu.Lock()
	sb := m.sandboxes[id]
	m.mu.Unlock()
	if sb == nil {
		return Sandbox{}, noSandbox(id)
	}
	sb.retiming.Lock()
	defer sb.retiming.Unlock()

	m.mu.Lock()
	if sb.ending {
		m.mu.Unlock()
		return Sandbox{}, noSandbox(id)
	}
	now := m.clock.Now()
	old := sb.info
	sb.touch(now)
	changed := change(&sb.info, now)
	if sb.info.Armed {
		m.timers.set(sb, sb.endAt())
	}
	wanted, snapshot := sb.info, sb.snapshot()
	wanted.LastActive = now
	m.mu.Unlock()
	if !changed {
		return snapshot, nil
	}
	_, err := m.update(ctx, sb.pod, func(pod *corev1.Pod) error {
		if pod.Labels[v1alpha1.LabelSandboxID] != id || phaseOf(pod) == v1alpha1.PodStopping {
			return errStopping
		}
		writeTimeout(pod, &wanted)
		return nil
	})
	if err == nil {
		return snapshot, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if sb.ending {
		return Sandbox{}, noSandbox(id)
	}
	sb.info.Timeout, sb.info.EndAt = old.Timeout, old.EndAt
	if sb.info.Armed {
		m.timers.set(sb, sb.endAt())
	}
	return Sandbox{}, &Error{Code: CodeInternal, Message: "the new timeout could not be recorded", Hint: "try again", RetryAfter: time.Second, Err: err}
}

// due ends a sandbox whose time has come, or says when to look again.
func (m *Manager) due(sb *sandbox) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := sb.endAt()
	if sb.ending || at.IsZero() || at.After(m.clock.Now()) {
		if sb.ending {
			return time.Time{}
		}
		return at
	}
	e := ending{status: StatusReleased, reason: failureIdleTimeout}
	if sb.info.TimeoutMode == TimeoutAbsolute {
		e.reason = failureTimeout
	}
	m.endLocked(sb, e)
	return time.Time{}
}

// liveRoute ties a route to its sandbox.
type liveRoute struct {
	Route
	sandbox *sandbox
}

// route opens the sandbox to the gateway. The caller holds mu.
func (m *Manager) route(sb *sandbox) {
	podIP, dial := sb.info.PodIP, m.opts.Dial
	m.routes.Store(sb.id, &liveRoute{sandbox: sb, Route: Route{
		Owner: sb.info.Owner,
		Dial: func(ctx context.Context, port int) (net.Conn, error) {
			sb.dialed.Store(true) // before it is looked whether the sandbox has ended: see lock
			if err := sb.life.Err(); err != nil {
				return nil, noSandbox(sb.id)
			}
			return dial(ctx, podIP, port)
		},
		Done:           sb.life.Done(),
		AccessToken:    sb.secrets.Access,
		TrafficToken:   sb.secrets.Traffic,
		PrivateTraffic: sb.private,
	}})
}

func (m *Manager) unroute(id string) { m.routes.Delete(id) }

// Route answers the gateway from memory. The bool is false for ids that are unknown, ended or not armed.
func (m *Manager) Route(id string) (Route, bool) {
	r, ok := m.routes.Load(id)
	if !ok {
		return Route{}, false
	}
	return r.(*liveRoute).Route, true
}

// Touch records activity on a sandbox. It never blocks and forgets unknown ids.
func (m *Manager) Touch(id string) {
	if r, ok := m.routes.Load(id); ok {
		r.(*liveRoute).sandbox.touch(m.clock.Now())
	}
}
