package claim

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func TestStartupTimeout(t *testing.T) {
	for _, tc := range []struct{ request, pool, fallback, want time.Duration }{
		{0, 0, 0, 2 * time.Minute},
		{0, 0, 55 * time.Second, 55 * time.Second},
		{0, time.Hour, 55 * time.Second, time.Hour},
		{time.Second, time.Hour, 55 * time.Second, time.Second},
	} {
		r := &Request{StartupTimeout: tc.request, DefaultStartupTimeout: tc.fallback}
		if got := startupTimeout(r, tc.pool); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

func TestTimeouts(t *testing.T) {
	ns := testBed.env(t, 2)
	m, _ := testBed.manager(t)
	t.Run("idle", func(t *testing.T) {
		sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env", Timeout: 300 * time.Millisecond})
		m.Touch(sb.ID)
		m.Touch("unknown")
		r := finished(t, m, sb.ID)
		if r.Status != StatusReleased || r.FailureReason != failureIdleTimeout {
			t.Errorf("record: %+v", r)
		}
		if idle := r.TerminatedAt.Sub(r.LastActive); idle < 300*time.Millisecond || !r.LastActive.After(sb.LastActive) {
			t.Errorf("ended after %s without activity; last active %s, created %s", idle, r.LastActive, sb.LastActive)
		}
	})
	t.Run("absolute by metadata", func(t *testing.T) {
		sb := mustCreate(t, m, Request{
			Owner: owner(ns), Env: "env", Timeout: 300 * time.Millisecond,
			Metadata: map[string]string{MetadataTimeoutMode: "absolute", "k": "v"},
		})
		if _, kept := sb.Metadata[MetadataTimeoutMode]; kept || sb.TimeoutMode != TimeoutAbsolute {
			t.Errorf("created: %+v", sb)
		}
		r := finished(t, m, sb.ID)
		if r.Status != StatusReleased || r.FailureReason != failureTimeout || r.TerminatedAt.Before(sb.EndAt) {
			t.Errorf("record: %+v; was to end at %s", r, sb.EndAt)
		}
	})
	t.Run("set and extend", func(t *testing.T) {
		for _, mode := range []TimeoutMode{TimeoutIdle, TimeoutAbsolute} {
			sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env", Timeout: time.Hour, TimeoutMode: mode})
			if s, err := m.Extend(t.Context(), sb.ID, time.Minute); err != nil || s.EndAt.Before(sb.EndAt) {
				t.Errorf("%s: extend by less: ends %s, was %s, %v", mode, s.EndAt, sb.EndAt, err)
			}
			now := time.Now()
			if s, err := m.Extend(t.Context(), sb.ID, 2*time.Hour); err != nil || s.EndAt.Before(now.Add(2*time.Hour)) {
				t.Errorf("%s: extend by more: ends %s, %v", mode, s.EndAt, err)
			}
			if s, err := m.SetTimeout(t.Context(), sb.ID, time.Minute); err != nil || s.EndAt.After(time.Now().Add(time.Minute)) || s.Timeout != time.Minute {
				t.Errorf("%s: set: ends %s, %v", mode, s.EndAt, err)
			}
			if _, err := m.SetTimeout(t.Context(), sb.ID, 0); code(err) != CodeInvalid {
				t.Errorf("%s: set to 0: %v", mode, err)
			}
			if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
				t.Fatal(describeError(err))
			}
		}
		if _, err := m.SetTimeout(t.Context(), "unknown", time.Minute); code(err) != CodeNotFound {
			t.Errorf("set on an unknown sandbox: %v", err)
		}
		testBed.awaitIdle(t, ns, 2)
	})
}

func TestRestartKeepsRunningSandboxes(t *testing.T) {
	ns := testBed.env(t, 1, func(e *v1alpha1.SandboxEnv) {
		e.Annotations = map[string]string{v1alpha1.AnnotationTimeoutMode: "absolute"}
	})
	first, stop := testBed.manager(t)
	sb := mustCreate(t, first, Request{
		Owner: owner(ns), Env: "env", Secure: true, PrivateTraffic: true, Timeout: time.Hour, Metadata: map[string]string{"a": "ü\n"},
	})
	longer, err := first.SetTimeout(t.Context(), sb.ID, 2*time.Hour)
	if err != nil {
		t.Fatal(describeError(err))
	}
	stop()
	if _, err := first.Create(t.Context(), Request{Owner: owner(ns), Env: "env"}); err == nil {
		t.Error("a stopped manager served a claim")
	}

	second, _ := testBed.manager(t)
	again, err := second.Get(t.Context(), sb.ID, false)
	if err != nil {
		t.Fatal(describeError(err))
	}
	if again.TimeoutMode != TimeoutAbsolute || !again.EndAt.Equal(longer.EndAt) || again.AccessToken != sb.AccessToken ||
		again.Metadata["a"] != "ü\n" || !again.ClaimedAt.Equal(sb.ClaimedAt) || again.Owner != sb.Owner {
		t.Errorf("before: %+v\nafter:  %+v", longer, again)
	}
	route, ok := second.Route(sb.ID)
	if !ok || route.AccessToken != sb.AccessToken || route.TrafficToken != sb.TrafficToken || !route.PrivateTraffic {
		t.Errorf("route: %+v, %v", route, ok)
	}
	if err := second.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
		t.Fatal(describeError(err))
	}
	finished(t, second, sb.ID)
	testBed.awaitIdle(t, ns, 1)
}

// TestWritesPerClaim holds the budget of writes on a Pod: one to claim it, and one when the sandbox lives on. A sandbox
// of short life takes two from start to end. (Records are written in batches.)
func TestWritesPerClaim(t *testing.T) {
	ns := testBed.env(t, 1)
	var writes atomic.Int64
	count := func(o client.Object, err error) error {
		if _, pod := o.(*corev1.Pod); pod && err == nil { // a conflict is not a write
			writes.Add(1)
		}
		return err
	}
	c := testBed.intercept(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return count(o, c.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return count(o, c.Patch(ctx, o, p, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return count(o, c.Delete(ctx, o, opts...))
		},
	})
	expect := func(what string, n int64) {
		t.Helper()
		// The answer may be behind what the server shows already.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		await(t, ctx, what+": the writes to be answered", func() bool { return writes.Load() >= n })
		if got := writes.Swap(0); got != n {
			t.Errorf("%s took %d writes; %d expected", what, got, n)
		}
	}
	m, stop := testBed.manager(t, func(o *Options) { o.Client, o.SettleAfter = c, time.Hour })
	sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env", Secure: true, Timeout: time.Hour})
	expect("a claim", 1)
	use(t, m, sb.ID)
	if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
		t.Fatal(describeError(err))
	}
	sb = mustCreate(t, m, Request{Owner: owner(ns), Env: "env", Secure: true, Timeout: time.Hour})
	expect("an end and the next claim", 2)
	stop()

	m, _ = testBed.manager(t, func(o *Options) { o.Client = c }) // which writes that the sandbox runs
	expect("a sandbox that lives on", 1)
	if s, err := m.Get(t.Context(), sb.ID, false); err != nil || !s.Armed || s.AccessToken != sb.AccessToken {
		t.Errorf("after a restart before it was written: %+v, %v", s, err)
	}
	if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
		t.Fatal(describeError(err))
	}
	testBed.awaitIdle(t, ns, 1)
	expect("a release of a Pod that nobody claims", 2)
}
