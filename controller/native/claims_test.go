package native

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"navix.sh/agentbox/controller/claim"
)

// testClaims hands out sandboxes from memory, and fails on demand. The claim path has tests of its own; here it is what
// the API's answers are made from.
type testClaims struct {
	mu     sync.Mutex
	all    []claim.Sandbox
	routes map[string]claim.Route
	fail   error
}

var _ claim.Service = (*testClaims)(nil)

func newTestClaims() *testClaims { return &testClaims{routes: map[string]claim.Route{}} }

func (t *testClaims) add(s claim.Sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, s)
}

func (t *testClaims) Create(_ context.Context, r claim.Request) (claim.Sandbox, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fail != nil {
		return claim.Sandbox{}, t.fail
	}
	s := claim.Sandbox{
		ID: "sb" + time.Now().Format("150405000000"), Owner: r.Owner, Pool: r.Pool, Pod: "pod", Status: claim.StatusRunning,
		Armed: true, ClaimedAt: time.Now(), StartedAt: time.Now(), Metadata: r.Metadata, Timeout: r.Timeout,
	}
	t.all = append(t.all, s)
	return s, nil
}

func missingSandbox() error {
	return &claim.Error{Code: claim.CodeNotFound, Message: "no such sandbox"}
}

func (t *testClaims) Get(_ context.Context, id string, finished bool) (claim.Sandbox, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if s.ID == id && (finished || s.TerminatedAt.IsZero()) {
			return s, nil
		}
	}
	return claim.Sandbox{}, missingSandbox()
}

func (t *testClaims) List(_ context.Context, f claim.Filter) ([]claim.Sandbox, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fail != nil {
		return nil, t.fail
	}
	var out []claim.Sandbox
	for _, s := range t.all {
		if (f.Owner.Namespace != "" && s.Owner.Namespace != f.Owner.Namespace) || (f.Pool != "" && s.Pool != f.Pool) ||
			(f.Env != "" && s.Env != f.Env) || (!f.Finished && !s.TerminatedAt.IsZero()) {
			continue
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b claim.Sandbox) int { return b.ClaimedAt.Compare(a.ClaimedAt) })
	return out, nil
}

func (t *testClaims) change(id string, f func(*claim.Sandbox)) (claim.Sandbox, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.all {
		if t.all[i].ID == id && t.all[i].TerminatedAt.IsZero() {
			f(&t.all[i])
			return t.all[i], nil
		}
	}
	return claim.Sandbox{}, missingSandbox()
}

func (t *testClaims) Kill(_ context.Context, id string, _ claim.Reason) error {
	_, err := t.change(id, func(s *claim.Sandbox) { s.Status, s.TerminatedAt = claim.StatusCompleted, time.Now() })
	return err
}

func (t *testClaims) SetTimeout(_ context.Context, id string, d time.Duration) (claim.Sandbox, error) {
	return t.change(id, func(s *claim.Sandbox) { s.Timeout = d })
}

func (t *testClaims) Extend(_ context.Context, id string, d time.Duration) (claim.Sandbox, error) {
	return t.change(id, func(s *claim.Sandbox) { s.Timeout = max(s.Timeout, d) })
}

func (t *testClaims) Touch(string) {}

func (t *testClaims) Route(id string) (claim.Route, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.routes[id]
	return r, ok
}

// routeTo sends a sandbox's traffic to an address.
func (t *testClaims) routeTo(id, address string) (end func()) {
	done := make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.routes[id] = claim.Route{
		Dial: func(ctx context.Context, _ int) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		Done: done,
	}
	return func() { close(done) }
}
