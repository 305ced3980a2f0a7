package claim

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/apiserver"
	"navix.sh/agentbox/controller/env"
)

func TestOtherImageIsSwappedIn(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t)
	sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env", Image: otherImage})
	if sb.Images["sandbox"] != otherImage {
		t.Errorf("the sandbox runs %v", sb.Images)
	}
	if !testBed.node.envdOf(sb.PodIP).armed {
		t.Error("the new container's envd is not armed")
	}
	if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
		t.Fatal(describeError(err))
	}
	if r := finished(t, m, sb.ID); r.Images["sandbox"] != otherImage {
		t.Errorf("the record names image %v", r.Images)
	}
	testBed.awaitIdle(t, ns, 1)
	if p := testBed.pods(t, ns)[0]; p.Spec.Containers[0].Image != testImage || p.Name != sb.Pod {
		t.Errorf("the Pod came back as %s on %s", p.Name, p.Spec.Containers[0].Image)
	}
}

func TestImageFailures(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t)
	const missing, slow = "registry.example/missing:1", "registry.example/slow:1"
	testBed.node.with(func() {
		testBed.node.pull[missing] = "manifest unknown: no such tag"
		testBed.node.stuck[slow] = true
	})
	tests := []struct {
		name, image string
		envd        int
		startup     time.Duration
		code        Code
		says        []string
		reason      string
	}{
		{name: "missing image", image: missing, code: CodePullFailed, says: []string{missing, "manifest unknown: no such tag"}, reason: "PullFailed"},
		{name: "slow pull", image: slow, startup: 400 * time.Millisecond, code: CodePullTimeout, says: []string{slow, "pull budget"}, reason: "PullTimeout"},
		{name: "not a reference", image: "UPPER CASE", code: CodeInvalid, says: []string{"UPPER CASE"}},
		{name: "the idle image", image: "registry.example/idle:1", code: "", says: nil},
		{name: "envd refuses", envd: 401, code: CodeStartFailed, says: []string{"401"}, reason: "StartFailed"},
		{name: "envd is slow", envd: 503, startup: 300 * time.Millisecond, code: CodeStartTimeout, says: []string{"start budget"}, reason: "StartTimeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testBed.node.with(func() { testBed.node.envdStatus = tt.envd })
			defer testBed.node.with(func() { testBed.node.envdStatus = 0 })
			sb, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env", Image: tt.image, StartupTimeout: tt.startup, Metadata: map[string]string{"test": tt.name}})
			if tt.code == "" {
				if err != nil {
					t.Fatal(describeError(err))
				}
				if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
					t.Fatal(describeError(err))
				}
				testBed.awaitIdle(t, ns, 1)
				return
			}
			if code(err) != tt.code {
				t.Fatalf("create: %v, want %s", describeError(err), tt.code)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error does not say %q: %v", s, err)
				}
			}
			testBed.awaitIdle(t, ns, 1)
			records, err := m.List(t.Context(), Filter{Owner: Owner{Namespace: ns}, Finished: true, Metadata: map[string]string{"test": tt.name}})
			if err != nil {
				t.Fatal(err)
			}
			if tt.reason == "" {
				if len(records) != 0 {
					t.Errorf("a refused request left %+v", records)
				}
			} else if len(records) != 1 || records[0].Status != StatusFailed || records[0].FailureReason != tt.reason {
				t.Errorf("records: %+v", records)
			}
		})
	}
}

func TestCallerGoesAway(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t)
	t.Run("while it waits", func(t *testing.T) {
		holder := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { _, err := m.Create(ctx, Request{Owner: owner(ns), Env: "env"}); result <- err }()
		await(t, t.Context(), "the claim to wait", func() bool { return m.Waiting(ns, "env-1c2gi") == 1 })
		cancel()
		if err := <-result; code(err) != CodeCanceled {
			t.Errorf("create: %v", describeError(err))
		}
		if n := m.Waiting(ns, "env-1c2gi"); n != 0 {
			t.Errorf("%d claims wait", n)
		}
		if err := m.Kill(t.Context(), holder.ID, ReasonKilled); err != nil {
			t.Fatal(describeError(err))
		}
		testBed.awaitIdle(t, ns, 1)
	})
	t.Run("while envd is armed", func(t *testing.T) {
		gate := make(chan struct{})
		testBed.node.with(func() { testBed.node.initGate = gate })
		defer testBed.node.with(func() { testBed.node.initGate = nil })
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			_, err := m.Create(ctx, Request{Owner: owner(ns), Env: "env", Metadata: map[string]string{"gone": "1"}})
			result <- err
		}()
		await(t, t.Context(), "the claim to stand on the Pod", func() bool {
			list, _ := m.List(t.Context(), Filter{Owner: Owner{Namespace: ns}})
			return len(list) == 1 && list[0].Status == StatusStarting && !list[0].Armed
		})
		list, _ := m.List(t.Context(), Filter{Owner: Owner{Namespace: ns}})
		if _, ok := m.Route(list[0].ID); ok {
			t.Error("a sandbox is routed before it is armed")
		}
		cancel()
		if err := <-result; code(err) != CodeCanceled {
			t.Errorf("create: %v", describeError(err))
		}
		close(gate)
		if r := finished(t, m, list[0].ID); r.Status != StatusCanceled {
			t.Errorf("record: %+v", r)
		}
		testBed.awaitIdle(t, ns, 1)
	})
	t.Run("killed while it starts", func(t *testing.T) {
		gate := make(chan struct{})
		testBed.node.with(func() { testBed.node.initGate = gate })
		defer testBed.node.with(func() { testBed.node.initGate = nil })
		result := make(chan error, 1)
		go func() { _, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env"}); result <- err }()
		var id string
		await(t, t.Context(), "the claim to stand on the Pod", func() bool {
			list, _ := m.List(t.Context(), Filter{Owner: Owner{Namespace: ns}})
			if len(list) == 1 {
				id = list[0].ID
			}
			return id != ""
		})
		if err := m.Kill(t.Context(), id, ReasonKilled); err != nil {
			t.Error(describeError(err))
		}
		if err := <-result; code(err) != CodeConflict {
			t.Errorf("create: %v", describeError(err))
		}
		close(gate)
		testBed.awaitIdle(t, ns, 1)
	})
}

func TestWaitingClaimsAreServedInOrder(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t, func(o *Options) { o.MaxWaiting = 3 })
	holder := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
	served := make(chan string, 3)
	for i, name := range []string{"first", "second", "third"} {
		go func() {
			sb, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env"})
			if err != nil {
				t.Errorf("%s: %v", name, describeError(err))
			}
			served <- name
			_ = m.Kill(t.Context(), sb.ID, ReasonKilled)
		}()
		await(t, t.Context(), name+" to wait", func() bool { return m.Waiting(ns, "env-1c2gi") == i+1 })
	}
	if _, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env"}); code(err) != CodeQueueFull {
		t.Errorf("a fourth waiting claim: %v", describeError(err))
	}
	if err := m.Kill(t.Context(), holder.ID, ReasonKilled); err != nil {
		t.Fatal(describeError(err))
	}
	for _, want := range []string{"first", "second", "third"} {
		if got := <-served; got != want {
			t.Errorf("%s was served when it was %s's turn", got, want)
		}
	}
	testBed.awaitIdle(t, ns, 1)
}

func TestNoCapacity(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t)
	holder := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
	_, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env", StartupTimeout: 50 * time.Millisecond})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeNoCapacity || e.RetryAfter == 0 || e.Hint == "" {
		t.Errorf("no idle Pod before the deadline: %+v", err)
	}
	if err := m.Kill(t.Context(), holder.ID, ReasonKilled); err != nil {
		t.Fatal(describeError(err))
	}
	tests := []struct {
		name string
		r    Request
		code Code
		says string
	}{
		{"unknown env", Request{Owner: owner(ns), Env: "nope"}, CodeNotFound, "nope"},
		{"unknown pool", Request{Owner: owner(ns), Pool: "nope"}, CodeNotFound, "nope"},
		{"unknown group", Request{Owner: owner(ns), Env: "env", ScalingGroup: "9c9gi"}, CodeNoCapacity, "9c9gi"},
		{"foreign namespace", Request{Owner: owner("default"), Env: "env"}, CodeNotFound, "env"},
		{"neither", Request{Owner: owner(ns)}, CodeInvalid, "either"},
		{"both", Request{Owner: owner(ns), Env: "env", Pool: "env-1c2gi"}, CodeInvalid, "either"},
		{"bad mode", Request{Owner: owner(ns), Env: "env", TimeoutMode: "sometimes"}, CodeInvalid, "sometimes"},
		{"large metadata", Request{Owner: owner(ns), Env: "env", Metadata: map[string]string{"a": strings.Repeat("x", 17<<10)}}, CodeInvalid, "metadata"},
		{"negative", Request{Owner: owner(ns), Env: "env", Timeout: -1}, CodeInvalid, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := m.Create(t.Context(), tt.r); code(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("create: %v, want %s with %q", describeError(err), tt.code, tt.says)
			}
		})
	}
}

func TestOtherOwnersPoolIsNotFound(t *testing.T) {
	ns := testBed.env(t, 1, func(e *v1alpha1.SandboxEnv) {
		e.Labels = map[string]string{v1alpha1.LabelTeam: "blue", v1alpha1.LabelUser: "bob"}
	})
	m, _ := testBed.manager(t)
	if _, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env"}); code(err) != CodeNotFound {
		t.Errorf("create by env: %v", describeError(err))
	}
	if _, err := m.Create(t.Context(), Request{Owner: owner(ns), Pool: "env-1c2gi"}); code(err) != CodeNotFound {
		t.Errorf("create by pool: %v", describeError(err))
	}
	sb := mustCreate(t, m, Request{Owner: Owner{Namespace: ns, Team: "blue", User: "bob"}, Pool: "env-1c2gi"})
	if sb.Env != "env" {
		t.Errorf("the sandbox belongs to env %q", sb.Env)
	}
	if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
		t.Fatal(describeError(err))
	}
	testBed.awaitIdle(t, ns, 1)
	if p := testBed.pods(t, ns)[0]; p.Labels[v1alpha1.LabelTeam] != "blue" {
		t.Errorf("the Pod's team label became %q", p.Labels[v1alpha1.LabelTeam])
	}
}

func TestWhatHappensToThePodEndsTheSandbox(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t)
	t.Run("container restarted", func(t *testing.T) {
		sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
		route, _ := m.Route(sb.ID)
		testBed.node.crash(&testBed.pods(t, ns)[0], "OOMKilled", 137)
		r := finished(t, m, sb.ID)
		if r.Status != StatusFailed || r.FailureReason != "OOMKilled" || r.ExitCode == nil || *r.ExitCode != 137 {
			t.Errorf("record: %+v", r)
		}
		<-route.Done
		testBed.awaitIdle(t, ns, 1)
	})
	t.Run("Pod deleted", func(t *testing.T) {
		sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
		pod := testBed.pods(t, ns)[0]
		if err := testBed.client.Delete(t.Context(), &pod); err != nil {
			t.Fatal(err)
		}
		if r := finished(t, m, sb.ID); r.Status != StatusFailed || r.FailureReason != failurePodDeleted {
			t.Errorf("record: %+v", r)
		}
		testBed.awaitIdle(t, ns, 1)
		if p := testBed.pods(t, ns)[0]; p.Name == pod.Name {
			t.Error("the Pod is still there")
		}
	})
	t.Run("reset impossible", func(t *testing.T) {
		testBed.node.with(func() { testBed.node.noReset = true })
		defer testBed.node.with(func() { testBed.node.noReset = false })
		sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
		use(t, m, sb.ID)
		if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
			t.Fatal(describeError(err))
		}
		testBed.awaitIdle(t, ns, 1)
		if p := testBed.pods(t, ns)[0]; p.Name == sb.Pod {
			t.Error("a Pod that could not be reset went back to its pool")
		}
	})
}

// TestPodDeletedWhileNoControllerRuns is why a claimed Pod has a finalizer: its record is written all the same.
func TestPodDeletedWhileNoControllerRuns(t *testing.T) {
	ns := testBed.env(t, 1)
	first, stop := testBed.manager(t)
	sb := mustCreate(t, first, Request{Owner: owner(ns), Env: "env"})
	stop()
	pod := testBed.pods(t, ns)[0]
	if err := testBed.client.Delete(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	next, _ := testBed.manager(t)
	if r := finished(t, next, sb.ID); r.Status != StatusFailed {
		t.Errorf("record: %+v", r)
	}
	testBed.awaitIdle(t, ns, 1)
}

func TestPodsThatMustNotBeClaimed(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t)
	refuse := func(t *testing.T) {
		t.Helper()
		if sb, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env", StartupTimeout: 50 * time.Millisecond}); code(err) != CodeNoCapacity {
			t.Errorf("claimed %s, %v", sb.Pod, err)
		}
	}
	seen := func(t *testing.T, what string, met func(p *trackedPod) bool) {
		await(t, t.Context(), what, func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range m.pods {
				if p.key.Namespace == ns && met(p) {
					return true
				}
			}
			return false
		})
	}
	t.Run("cordoned node", func(t *testing.T) {
		cordon := func(on bool) {
			var node corev1.Node
			if err := testBed.client.Get(t.Context(), types.NamespacedName{Name: apiserver.NodeName}, &node); err != nil {
				t.Fatal(err)
			}
			node.Spec.Unschedulable = on
			if err := testBed.client.Update(t.Context(), &node); err != nil {
				t.Fatal(err)
			}
		}
		cordon(true)
		seen(t, "the cordon", func(p *trackedPod) bool { return p.place == nil })
		refuse(t)
		cordon(false)
		seen(t, "the end of the cordon", func(p *trackedPod) bool { return p.place != nil })
	})
	t.Run("protected from scale-down", func(t *testing.T) {
		pod := testBed.pods(t, ns)[0]
		patch := client.MergeFrom(pod.DeepCopy())
		pod.Annotations = merged(pod.Annotations, map[string]string{v1alpha1.AnnotationScaleDownProtected: time.Now().Format(time.RFC3339)})
		if err := testBed.client.Patch(t.Context(), &pod, patch); err != nil {
			t.Fatal(err)
		}
		seen(t, "the mark", func(p *trackedPod) bool { return p.place == nil })
		refuse(t)
	})
}

// TestLostAnswerOfTheClaimWrite makes the API server's answer to a claim fail both ways: the write that was made must
// not leave a claim behind, and the one that was not must not leave a Pod reserved.
func TestLostAnswerOfTheClaimWrite(t *testing.T) {
	ns := testBed.env(t, 1)
	for _, applied := range []bool{true, false} {
		fail := true
		c := testBed.intercept(interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if _, pod := o.(*corev1.Pod); !pod || !fail {
					return c.Update(ctx, o, opts...)
				}
				fail = false
				if applied {
					if err := c.Update(ctx, o, opts...); err != nil {
						return err
					}
				}
				return errors.New("connection reset by peer")
			},
		})
		m, stop := testBed.manager(t, func(o *Options) { o.Client = c })
		if _, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env"}); code(err) != CodeInternal {
			t.Errorf("create: %v", describeError(err))
		}
		sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
		if err := m.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
			t.Error(describeError(err))
		}
		testBed.awaitIdle(t, ns, 1)
		stop()
	}
}

// TestAnotherWriterTakesThePod changes the Pod between the choice and the claim's write.
func TestAnotherWriterTakesThePod(t *testing.T) {
	ns := testBed.env(t, 2)
	touched := ""
	c := testBed.intercept(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if pod, ok := o.(*corev1.Pod); ok && touched == "" {
				touched = pod.Name
				current := &corev1.Pod{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(pod), current); err != nil {
					return err
				}
				current.Annotations = merged(current.Annotations, map[string]string{"somebody": "else"})
				if err := c.Update(ctx, current); err != nil {
					return err
				}
			}
			return c.Update(ctx, o, opts...)
		},
	})
	m, _ := testBed.manager(t, func(o *Options) { o.Client = c })
	sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
	other := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
	if sb.Pod == other.Pod {
		t.Errorf("Pod %s was given twice", sb.Pod)
	}
}

// later is a clock that is ahead.
type later struct {
	clock.RealClock
	by time.Duration
}

func (c later) Now() time.Time                  { return c.RealClock.Now().Add(c.by) }
func (c later) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestEndedMeanwhile shows that a sandbox which ended while no controller ran is on record with the time of its end.
func TestEndedMeanwhile(t *testing.T) {
	for reason, want := range map[string]Status{v1alpha1.ReasonPlatformStopped: StatusCompleted, "OOMKilled": StatusFailed} {
		t.Run(reason, func(t *testing.T) {
			ns := testBed.env(t, 1)
			m, stop := testBed.manager(t)
			sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
			await(t, t.Context(), "the Pod says that it runs a sandbox", func() bool {
				return testBed.pods(t, ns)[0].Annotations[v1alpha1.AnnotationArmed] == sb.ID
			})
			stop()
			end := sb.StartedAt.Add(2 * time.Second).Truncate(time.Second)
			testBed.node.end(&testBed.pods(t, ns)[0], corev1.ContainerStateTerminated{
				Reason: reason, Message: "it was so", ExitCode: 137, FinishedAt: metav1.NewTime(end),
			})
			await(t, t.Context(), "the Pod tells of the end", func() bool {
				return testBed.pods(t, ns)[0].Status.ContainerStatuses[0].LastTerminationState.Terminated != nil
			})
			next, _ := testBed.manager(t, func(o *Options) { o.Clock = later{by: time.Hour} })
			r := finished(t, next, sb.ID)
			if r.Status != want || r.FailureReason != reason || r.FailureMessage != "it was so" || !r.TerminatedAt.Equal(end) || r.LastActive.After(end) {
				t.Errorf("record: %+v, want the end at %s", r, end)
			}
			if (r.ExitCode == nil) != (want == StatusCompleted) {
				t.Errorf("the exit code is %v", r.ExitCode)
			}
		})
	}
}

// TestScaledToZero: nothing would end the wait for a Pod of an env without any, whatever its scaling policies say.
func TestScaledToZero(t *testing.T) {
	ns := testBed.env(t, 0, func(e *v1alpha1.SandboxEnv) {
		group := env.DefaultGroup("1c2gi")
		group.Enabled = true
		e.Spec.Autoscaling = &v1alpha1.EnvAutoscaling{Groups: []v1alpha1.ScalingGroup{group}}
	})
	m, _ := testBed.manager(t)
	await(t, t.Context(), "the pool to be known", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		pl := m.pools[types.NamespacedName{Namespace: ns, Name: "env-1c2gi"}]
		return pl != nil && !pl.absent
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := m.Create(ctx, Request{Owner: owner(ns), Env: "env"})
	if code(err) != CodeNoCapacity || !strings.Contains(err.Error(), "scaled to zero") {
		t.Errorf("create: %v", describeError(err))
	}
}
