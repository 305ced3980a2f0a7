package access

import (
	"errors"
	"sync"
	"testing"
	"time"
)

var scalePool = gated[act{VerbUpdate, KindPool}]

func agentCaller(id string) Caller {
	return Caller{KeyID: id, Role: RoleTenant, Agent: true, Team: "red", User: "alice", Namespace: "n"}
}

func approvalsAt(t *testing.T, now *time.Time) *Approvals {
	t.Helper()
	s, err := NewStore(Options{Client: testClient(t), Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	return s.NewApprovals()
}

func TestApprovalTimes(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	a := approvalsAt(t, &now)
	who := agentCaller("0000000000000001")
	call := Held{Method: "PUT", Path: "/envs/a/sandboxpools/b", Body: []byte("{}"), Session: "s"}
	first, err := a.Spend(t.Context(), who, scalePool, call)
	if err != nil || first == nil {
		t.Fatal(first, err)
	}
	now = now.Add(ApprovalLife)
	if r, err := a.Request(t.Context(), first.ID); err != nil || r.Status != ApprovalExpired {
		t.Errorf("after its time: %+v, %v", r, err)
	}
	if _, err := a.Decide(t.Context(), first.ID, "alice", true, ScopeOnce); !errors.Is(err, ErrDecided) {
		t.Errorf("deciding an expired request: %v", err)
	}
	second, err := a.Spend(t.Context(), who, scalePool, call)
	if err != nil || second == nil || second.ID == first.ID {
		t.Fatalf("asked again: %+v, %v", second, err)
	}
	if _, err := a.Decide(t.Context(), second.ID, "alice", true, ScopeSession); err != nil {
		t.Fatal(err)
	}
	now = now.Add(SessionLife - time.Second)
	if r, err := a.Spend(t.Context(), who, scalePool, Held{Method: "PUT", Path: "/other", Session: "s"}); r != nil || err != nil {
		t.Errorf("inside the session: %+v, %v", r, err)
	}
	now = now.Add(time.Second)
	if r, err := a.Spend(t.Context(), who, scalePool, Held{Method: "PUT", Path: "/other", Session: "s"}); r == nil || err != nil {
		t.Errorf("after the session: %+v, %v", r, err)
	}
	// What ended long ago is forgotten, what waits is not.
	now = now.Add(forgetAfter + ApprovalLife)
	last, err := a.Spend(t.Context(), who, scalePool, Held{Method: "PUT", Path: "/last"})
	if err != nil || last == nil {
		t.Fatal(last, err)
	}
	if _, err := a.Request(t.Context(), first.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("an old request: %v", err)
	}
	if _, err := a.Request(t.Context(), last.ID); err != nil {
		t.Errorf("the new request: %v", err)
	}
}

// TestApprovalIsSpentOnce lets many identical calls race for one approval.
func TestApprovalIsSpentOnce(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	a := approvalsAt(t, &now)
	// A second one on the same objects, as another replica is.
	b := &Approvals{client: a.client, namespace: a.namespace, now: a.now}
	who := agentCaller("0000000000000001")
	call := Held{Method: "DELETE", Path: "/envs/a"}
	op := gated[act{VerbDelete, KindEnv}]
	r, err := a.Spend(t.Context(), who, op, call)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Decide(t.Context(), r.ID, "alice", true, ScopeOnce); err != nil {
		t.Fatal(err)
	}
	if r, err := a.Spend(t.Context(), agentCaller("0000000000000002"), op, call); r == nil || err != nil {
		t.Errorf("another key of the same person spends it: %+v, %v", r, err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	through := 0
	for i := range 10 {
		store := a
		if i%2 == 0 {
			store = b
		}
		all.Go(func() {
			r, err := store.Spend(t.Context(), who, op, call)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r == nil {
				through++
			}
		})
	}
	all.Wait()
	if through != 1 {
		t.Errorf("%d calls went through on one approval", through)
	}
}

func TestFingerprintIsOfTheConcreteCall(t *testing.T) {
	seen := map[string]Held{}
	for _, h := range []Held{
		{Method: "DELETE", Path: "/envs/a"}, {Method: "DELETE", Path: "/envs/b"}, {Method: "PUT", Path: "/envs/a"},
		{Method: "PUT", Path: "/envs/a", Body: []byte("x")}, {Method: "PUT", Path: "/envs/ax"}, {Method: "PUT/envs", Path: "/a"},
	} {
		if other, twice := seen[h.fingerprint()]; twice {
			t.Errorf("%+v and %+v are one call", h, other)
		}
		seen[h.fingerprint()] = h
	}
}
