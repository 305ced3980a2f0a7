package pool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// The claim package runs this reconciler on a real API server. Here the server is made to refuse and to lose answers.

type rig struct {
	t      *testing.T
	r      *reconciler
	client client.Client
	clock  *testclock.FakeClock
	key    types.NamespacedName
}

func newRig(t *testing.T, replicas int32, funcs interceptor.Funcs) *rig {
	scheme := runtime.NewScheme()
	_ = clientscheme.AddToScheme(scheme)
	_ = v1alpha1.AddToScheme(scheme)
	s := spec()
	s.Replicas = replicas
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "ns", UID: "u"}, Spec: *s}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(p).WithStatusSubresource(p).
		WithIndex(&corev1.Pod{}, indexPool, func(o client.Object) []string { return []string{poolOf(o)} }).
		WithInterceptorFuncs(funcs).Build()
	clk := testclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	return &rig{t: t, client: c, clock: clk, key: client.ObjectKeyFromObject(p), r: &reconciler{
		client: c, live: c, events: record.NewFakeRecorder(100), clock: clk, expectations: newExpectations(), memory: map[types.NamespacedName]*memory{},
	}}
}

// reconcile makes one pass and moves the clock on far enough that the next may write a status.
func (g *rig) reconcile() (ctrl.Result, error) {
	g.clock.Step(statusEvery)
	return g.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: g.key})
}

func (g *rig) pool() *v1alpha1.SandboxPool {
	g.t.Helper()
	var p v1alpha1.SandboxPool
	if err := g.client.Get(context.Background(), g.key, &p); err != nil {
		g.t.Fatal(err)
	}
	return &p
}

func (g *rig) pods() []corev1.Pod {
	g.t.Helper()
	var l corev1.PodList
	if err := g.client.List(context.Background(), &l, client.InNamespace("ns")); err != nil {
		g.t.Fatal(err)
	}
	return l.Items
}

func onPodCreate(f func(ctx context.Context, c client.WithWatch, o client.Object) error) interceptor.Funcs {
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*corev1.Pod); ok {
			return f(ctx, c, o)
		}
		return c.Create(ctx, o, opts...)
	}}
}

func TestPoolFillsAndGoes(t *testing.T) {
	g := newRig(t, 3, interceptor.Funcs{})
	for range 3 {
		if _, err := g.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(g.pods()); n != 3 {
		t.Fatalf("%d Pods", n)
	}
	p := g.pool()
	if p.Status.IdleReplicas != 3 || p.Status.UnavailableIdleReplicas != 3 || p.Status.Phase != v1alpha1.PoolDegraded || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolConditionAdmitted) {
		t.Errorf("status %+v", p.Status)
	}
	var secret corev1.Secret
	if err := g.client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: InitSecretName("pool")}, &secret); err != nil || len(secret.Data[InitSecretKey]) != 64 {
		t.Errorf("init secret: %v", err)
	}
	if h := p.Labels[v1alpha1.LabelTemplateHash]; h == "" || h != p.Status.UpdateRevision || h != g.pods()[0].Labels[v1alpha1.LabelTemplateHash] {
		t.Errorf("the pool's label says revision %q, its status %q", h, p.Status.UpdateRevision)
	}
	version := p.ResourceVersion
	if result, err := g.reconcile(); err != nil || result.RequeueAfter != 0 || g.pool().ResourceVersion != version {
		t.Errorf("a settled pool is not left alone: %+v, %v", result, err)
	}
	if err := g.client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := g.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.client.Get(t.Context(), g.key, p); !apierrors.IsNotFound(err) || len(g.pods()) != 0 {
		t.Errorf("the pool is left: %v, with %d Pods", err, len(g.pods()))
	}
}

func TestRefusedPods(t *testing.T) {
	pods := corev1.Resource("pods")
	tests := []struct {
		name, reason string
		err          error
		retries      bool
	}{
		{"quota", v1alpha1.ReasonResourceQuotaExhausted, apierrors.NewForbidden(pods, "x", errors.New("exceeded quota: team-a")), true},
		{"policy", v1alpha1.ReasonAdmissionRejected, apierrors.NewForbidden(pods, "x", errors.New("privileged is not allowed")), false},
		{"invalid", v1alpha1.ReasonAdmissionRejected, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "x", nil), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tries := 0
			g := newRig(t, 3, onPodCreate(func(context.Context, client.WithWatch, client.Object) error { tries++; return tt.err }))
			result, err := g.reconcile()
			if err != nil || tries != 1 || (result.RequeueAfter > 0 && result.RequeueAfter <= quotaRetry) != tt.retries {
				t.Errorf("%d tries, again in %s, %v", tries, result.RequeueAfter, err)
			}
			c := meta.FindStatusCondition(g.pool().Status.Conditions, v1alpha1.PoolConditionAdmitted)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != tt.reason || c.Message == "" {
				t.Errorf("Admitted: %+v", c)
			}
		})
	}
}

func TestLostCreateAnswers(t *testing.T) {
	for _, made := range []bool{true, false} {
		tries := 0
		g := newRig(t, 2, onPodCreate(func(ctx context.Context, c client.WithWatch, o client.Object) error {
			tries++
			if tries == 1 {
				if made {
					if err := c.Create(ctx, o); err != nil {
						return err
					}
				}
				return errors.New("connection reset by peer")
			}
			return c.Create(ctx, o)
		}))
		if _, err := g.reconcile(); err == nil {
			t.Error("a lost answer is no success")
		}
		for range 5 {
			if _, err := g.reconcile(); err != nil {
				t.Fatal(err)
			}
			if n := len(g.pods()); n > 2 {
				t.Fatalf("made=%v: %d Pods", made, n)
			}
		}
		g.clock.Step(expectationTTL) // the create that did not happen is given up
		for range 2 {
			if _, err := g.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(g.pods()); n != 2 {
			t.Errorf("made=%v: %d Pods in the end", made, n)
		}
	}
}

func TestDyingPodsBackOff(t *testing.T) {
	created := 0
	g := newRig(t, 1, onPodCreate(func(ctx context.Context, c client.WithWatch, o client.Object) error {
		created++
		return c.Create(ctx, o)
	}))
	for range 200 { // 100 s of passes, every Pod dies at once
		if _, err := g.reconcile(); err != nil {
			t.Fatal(err)
		}
		for _, p := range g.pods() {
			p.Status.Phase = corev1.PodFailed
			if err := g.client.Status().Update(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if created > 10 {
		t.Errorf("%d Pods were created in 100 s although all die", created)
	}
}

// TestFailingPodsAreReported: a pool whose Pods die says so, how often and until when it waits, and no longer once a
// Pod lives. It writes its status only when there is something new.
func TestFailingPodsAreReported(t *testing.T) {
	writes := 0
	g := newRig(t, 1, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
		if _, ok := o.(*v1alpha1.SandboxPool); ok {
			writes++
		}
		return c.SubResource(sub).Update(ctx, o, opts...)
	}})
	pass := func() {
		t.Helper()
		if _, err := g.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	status := func(change func(*corev1.PodStatus)) {
		t.Helper()
		for _, p := range g.pods() {
			change(&p.Status)
			if err := g.client.Status().Update(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	degraded := func() *metav1.Condition {
		return meta.FindStatusCondition(g.pool().Status.Conditions, v1alpha1.PoolConditionDegraded)
	}
	for died := 0; died < 3; {
		pass()
		if len(g.pods()) == 0 {
			continue // held back
		}
		died++
		status(func(s *corev1.PodStatus) {
			// It was Ready for a moment: nothing that runs at all is less.
			s.Phase = corev1.PodFailed
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "sandbox", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}}
		})
		pass()
	}
	p, c := g.pool(), degraded()
	until := g.clock.Now().Add(4 * time.Second).UTC().Format(time.RFC3339)
	if p.Status.Phase != v1alpha1.PoolDegraded || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonPodsFailing ||
		!strings.Contains(c.Message, "3 times in a row") || !strings.Contains(c.Message, until) || !strings.Contains(c.Message, "exit code 3") {
		t.Errorf("phase %s, Degraded %+v", p.Status.Phase, c)
	}
	pass() // the dead Pod has gone
	before := writes
	for range 4 {
		pass()
	}
	if writes != before {
		t.Errorf("%d status writes while nothing happened", writes-before)
	}
	for len(g.pods()) == 0 {
		pass()
	}
	status(func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(g.clock.Now())}}
	})
	pass()
	if c := degraded(); c.Reason != v1alpha1.ReasonPodsFailing {
		t.Errorf("a Pod that became ready a moment ago makes the pool healthy: %+v", c)
	}
	g.clock.Step(stableAfter)
	pass()
	if p, c := g.pool(), degraded(); p.Status.Phase != v1alpha1.PoolReady || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonAllPodsHealthy {
		t.Errorf("phase %s, Degraded %+v", p.Status.Phase, c)
	}
}

// TestServingEndsTheBackOff: a Pod that serves shows that Pods of its kind work, if it was made after the last death.
func TestServingEndsTheBackOff(t *testing.T) {
	now := time.Now()
	for created, want := range map[time.Duration]int{-time.Minute: 3, -time.Second: 0} {
		p := &pass{
			pool: &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: 2}}, now: now,
			memory: &memory{failing: Failing{Times: 3, Last: now.Add(-2 * time.Second)}},
			pods:   []Pod{{Ready: true, ReadySince: now, Serves: true, Created: now.Add(created)}},
		}
		p.backOff()
		if p.memory.failing.Times != want {
			t.Errorf("made %s ago: %d failures, want %d", -created, p.memory.failing.Times, want)
		}
	}
}
