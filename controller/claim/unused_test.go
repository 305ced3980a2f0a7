package claim

import (
	"testing"
	"time"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// use connects to a sandbox, as the gateway does.
func use(t testing.TB, m *Manager, id string) {
	t.Helper()
	r, ok := m.Route(id)
	if !ok {
		t.Fatalf("no route to %s", id)
	}
	conn, err := r.Dial(t.Context(), EnvdPort)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestUnusedSandboxNeedsNoReset: a Pod goes back as it is only when it is certain that nobody was in it.
func TestUnusedSandboxNeedsNoReset(t *testing.T) {
	for _, test := range []struct {
		name    string
		request Request
		happens func(m *Manager, sb Sandbox)
		reset   bool
	}{
		{name: "nothing happens"},
		{name: "variables", request: Request{EnvVars: map[string]string{"K": "v"}}, reset: true},
		{name: "a connection", happens: func(m *Manager, sb Sandbox) { use(t, m, sb.ID) }, reset: true},
		{name: "a request around the gateway", happens: func(_ *Manager, sb Sandbox) {
			testBed.node.with(func() { testBed.node.byIP[sb.PodIP].envd.used = true })
		}, reset: true},
		{name: "envd does not answer", happens: func(*Manager, Sandbox) {
			testBed.node.with(func() { testBed.node.envdStatus = 403 })
		}, reset: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns := testBed.env(t, 1)
			m, _ := testBed.manager(t)
			r := test.request
			r.Owner, r.Env, r.Secure = owner(ns), "env", true
			sb := mustCreate(t, m, r)
			if test.happens != nil {
				test.happens(m, sb)
			}
			err := m.Kill(t.Context(), sb.ID, ReasonKilled)
			testBed.awaitIdle(t, ns, 1)
			testBed.node.with(func() { testBed.node.envdStatus = 0 })
			if err != nil {
				t.Fatal(describeError(err))
			}
			pod := testBed.pods(t, ns)[0]
			if reset := mainStatus(&pod).ContainerID != sb.ContainerID; reset != test.reset || pod.Name != sb.Pod {
				t.Errorf("reset: %v, want %v; Pod %s, was %s", reset, test.reset, pod.Name, sb.Pod)
			}
			if envd := testBed.node.envdOf(sb.PodIP); envd.body.AccessToken == sb.AccessToken || envd.body.SandboxID != "" || envd.armed == test.reset {
				t.Errorf("envd afterwards: %+v", envd)
			}
			next := mustCreate(t, m, Request{Owner: owner(ns), Env: "env", Secure: true})
			if envd := testBed.node.envdOf(next.PodIP); envd.body.AccessToken != next.AccessToken || envd.body.SandboxID != next.ID {
				t.Errorf("the next sandbox's envd: %+v", envd)
			}
		})
	}
}

// TestSpentPodSettlesInTheEnd: a claim that took a spent Pod and gave it back does not leave it marked for ever.
func TestSpentPodSettlesInTheEnd(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t, func(o *Options) { o.SettleAfter = 100 * time.Millisecond })
	sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
	if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
		t.Fatal(describeError(err))
	}
	var pod *trackedPod
	await(t, t.Context(), "the Pod to be claimable", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range m.pods {
			if p.key.Namespace == ns && p.spent == sb.ID && p.place != nil {
				m.unqueue(p)
				p.reserved = &waiter{}
				pod = p
			}
		}
		return pod != nil
	})
	m.settleIdle(pod, sb.ID) // passes by, as the one that was on its way has done by now
	m.giveUp(pod)
	testBed.awaitIdle(t, ns, 1)
}

// TestEndWrittenByAnotherProcess: a controller that took a sandbox over from an old version of its Pod follows the end
// that its predecessor had written.
func TestEndWrittenByAnotherProcess(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t)
	sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
	await(t, t.Context(), "the sandbox to be marked as running", func() bool {
		return phaseOf(&testBed.pods(t, ns)[0]) == v1alpha1.PodRunning
	})
	pod := testBed.pods(t, ns)[0]
	sb.Status, sb.TerminatedAt = StatusCompleted, time.Now()
	if err := writeStop(&pod, &sb); err != nil {
		t.Fatal(err)
	}
	if err := testBed.client.Update(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	if r := finished(t, m, sb.ID); r.Status != StatusCompleted {
		t.Errorf("the record: %+v", r)
	}
	if _, ok := m.Route(sb.ID); ok {
		t.Error("an ended sandbox is routed")
	}
	testBed.awaitIdle(t, ns, 1)
}
