package claim

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func owner(ns string) Owner { return Owner{Namespace: ns, Team: "red", User: "ann"} }

func mustCreate(t testing.TB, m *Manager, r Request) Sandbox {
	t.Helper()
	sb, err := m.Create(t.Context(), r)
	if err != nil {
		t.Fatalf("create: %v", describeError(err))
	}
	return sb
}

func describeError(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return errors.New(string(e.Code) + ": " + e.Message + " (" + e.Hint + ")")
	}
	return err
}

func code(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// record waits until a finished sandbox can be read.
func finished(t testing.TB, m *Manager, id string) Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var sb Sandbox
	await(t, ctx, "the record of "+id, func() bool {
		var err error
		sb, err = m.Get(ctx, id, true)
		return err == nil && isFinal(sb.Status)
	})
	return sb
}

func TestCreateArmKill(t *testing.T) {
	ns := testBed.env(t, 2)
	m, _ := testBed.manager(t)
	sb := mustCreate(t, m, Request{
		Owner: owner(ns), Env: "env", Secure: true, PrivateTraffic: true, Timeout: time.Hour,
		Metadata: map[string]string{"run": "7"}, EnvVars: map[string]string{"A": "1"},
	})
	if sb.Status != StatusRunning || !sb.Armed || sb.Pool != "env-1c2gi" || sb.Group != "1c2gi" || sb.CPU != "1" || sb.Memory != "2Gi" {
		t.Errorf("created: %+v", sb)
	}
	if len(sb.AccessToken) != 64 || len(sb.TrafficToken) != 64 || sb.AccessToken == sb.TrafficToken {
		t.Error("the tokens are not two random ones")
	}
	envd := testBed.node.envdOf(sb.PodIP)
	token, err := initSecret(t.Context(), testBed.client, ns, sb.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if !envd.armed || envd.body.AccessToken != sb.AccessToken || envd.body.EnvVars["A"] != "1" || envd.body.SandboxID != sb.ID || envd.token != token {
		t.Errorf("envd got %+v", envd)
	}
	route, ok := m.Route(sb.ID)
	if !ok || route.AccessToken != sb.AccessToken || !route.PrivateTraffic || route.TrafficToken != sb.TrafficToken || route.Owner != owner(ns) {
		t.Errorf("route %+v, %v", route, ok)
	}
	if end := sb.EndAt.Sub(sb.LastActive); end != time.Hour {
		t.Errorf("the sandbox ends %s after its last activity", end)
	}
	list, err := m.List(t.Context(), Filter{Owner: Owner{Namespace: ns}, Metadata: map[string]string{"run": "7"}})
	if err != nil || len(list) != 1 || list[0].ID != sb.ID {
		t.Errorf("list: %v, %v", list, err)
	}

	if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
		t.Fatal(err)
	}
	select {
	case <-route.Done:
	default:
		t.Error("the route's connections are not told that the sandbox has ended")
	}
	if _, ok := m.Route(sb.ID); ok {
		t.Error("a killed sandbox is still routed")
	}
	if _, err := route.Dial(t.Context(), EnvdPort); err == nil {
		t.Error("a killed sandbox can still be dialled")
	}
	if _, err := m.Get(t.Context(), sb.ID, false); code(err) != CodeNotFound {
		t.Errorf("get after kill: %v", err)
	}
	if err := m.Kill(t.Context(), sb.ID, ReasonKilled); code(err) != CodeNotFound {
		t.Errorf("second kill: %v", err)
	}
	done := finished(t, m, sb.ID)
	if done.Status != StatusCompleted || done.Metadata["run"] != "7" || done.AccessToken != "" || done.TerminatedAt.IsZero() || done.Pod != sb.Pod {
		t.Errorf("record: %+v", done)
	}
	testBed.awaitIdle(t, ns, 2)
	for _, p := range testBed.pods(t, ns) {
		for _, key := range claimAnnotations {
			if v, ok := p.Annotations[key]; ok {
				t.Errorf("Pod %s keeps annotation %s=%s", p.Name, key, v)
			}
		}
		if p.Labels[v1alpha1.LabelTeam] != "" || p.Labels[v1alpha1.LabelManagedBy] != "" || len(p.Finalizers) > 0 {
			t.Errorf("Pod %s keeps labels %v, finalizers %v", p.Name, p.Labels, p.Finalizers)
		}
	}
	if testBed.node.envdOf(sb.PodIP).armed {
		t.Error("the Pod came back without a reset")
	}
}

func TestManyClaimsAtOnceShareFewPods(t *testing.T) {
	ns := testBed.env(t, 4)
	m, _ := testBed.manager(t)
	const claims = 40
	var wg sync.WaitGroup
	var mu sync.Mutex
	holders := map[string]string{} // Pod → sandbox
	for range claims {
		wg.Go(func() {
			sb, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env"})
			if err != nil {
				t.Errorf("create: %v", describeError(err))
				return
			}
			mu.Lock()
			if other := holders[sb.Pod]; other != "" {
				t.Errorf("Pod %s is held by %s and %s", sb.Pod, other, sb.ID)
			}
			holders[sb.Pod] = sb.ID
			mu.Unlock()
			mu.Lock()
			delete(holders, sb.Pod)
			mu.Unlock()
			if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
				t.Errorf("kill: %v", describeError(err))
			}
		})
	}
	wg.Wait()
	testBed.awaitIdle(t, ns, 4)
	list, err := m.List(t.Context(), Filter{Owner: Owner{Namespace: ns}, Finished: true})
	if err != nil || len(list) != claims {
		t.Errorf("%d records, %v; want %d", len(list), err, claims)
	}
}
