package claim

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// TestPoolDeletedUnderRunningSandboxes: deleting from any state ends, leaves records, and leaves nothing else.
func TestPoolDeletedUnderRunningSandboxes(t *testing.T) {
	ns := testBed.env(t, 3)
	m, _ := testBed.manager(t)
	gate := make(chan struct{})
	running := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
	route, _ := m.Route(running.ID)
	testBed.node.with(func() { testBed.node.initGate = gate })
	starting := make(chan error, 1)
	go func() { _, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env"}); starting <- err }()
	await(t, t.Context(), "a starting sandbox", func() bool {
		list, _ := m.List(t.Context(), Filter{Owner: Owner{Namespace: ns}, Statuses: []Status{StatusStarting}})
		return len(list) == 1
	})
	if err := testBed.client.DeleteAllOf(t.Context(), &v1alpha1.SandboxEnv{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if err := testBed.client.DeleteAllOf(t.Context(), &v1alpha1.SandboxPool{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	<-route.Done
	if err := <-starting; code(err) == "" {
		t.Errorf("the starting sandbox: %v", err)
	}
	testBed.node.with(func() { testBed.node.initGate = nil })
	close(gate)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	await(t, ctx, "pool and Pods to go", func() bool {
		var p v1alpha1.SandboxPool
		err := testBed.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "env-1c2gi"}, &p)
		return apierrors.IsNotFound(err) && len(testBed.pods(t, ns)) == 0
	})
	if r := finished(t, m, running.ID); r.Status != StatusFailed || r.FailureReason != failurePodDeleted {
		t.Errorf("record: %+v", r)
	}
	if _, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env"}); code(err) != CodeNotFound {
		t.Errorf("create afterwards: %v", describeError(err))
	}
}

// unlabel takes the label of its pool from a Pod, as `kubectl label pod <pod> agentbox.navix.sh/sandbox-pool-` does.
func unlabel(t *testing.T, ns, name string) {
	t.Helper()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = ns, name
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+v1alpha1.LabelPool+`":null}}}`))
	if err := testBed.client.Patch(t.Context(), pod, patch); err != nil {
		t.Fatal(err)
	}
}

// deleteAll deletes the env and its pools, and waits until the pools and every Pod are gone.
func deleteAll(t *testing.T, ns string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, kind := range []client.Object{&v1alpha1.SandboxEnv{}, &v1alpha1.SandboxPool{}} {
		if err := testBed.client.DeleteAllOf(ctx, kind, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, ctx, "pools and Pods to go", func() bool {
		var pools v1alpha1.SandboxPoolList
		err := testBed.client.List(ctx, &pools, client.InNamespace(ns))
		return err == nil && len(pools.Items) == 0 && len(testBed.pods(t, ns)) == 0
	})
}

// TestUnlabelledPods: a Pod that loses the label by which it is watched stays its pool's, and so does what runs in it.
func TestUnlabelledPods(t *testing.T) {
	labelled := func(t *testing.T, ns, name string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		await(t, ctx, "the label to return", func() bool {
			var pod corev1.Pod
			err := testBed.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &pod)
			return err == nil && pod.Labels[v1alpha1.LabelPool] == "env-1c2gi"
		})
	}
	t.Run("a sandbox goes on", func(t *testing.T) {
		ns := testBed.env(t, 1)
		m, _ := testBed.manager(t)
		sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
		unlabel(t, ns, sb.Pod)
		labelled(t, ns, sb.Pod)
		if _, ok := m.Route(sb.ID); !ok {
			t.Error("the sandbox is not routed any more")
		}
		deleteAll(t, ns)
		if r := finished(t, m, sb.ID); r.FailureReason != failurePodDeleted {
			t.Errorf("record: %+v", r)
		}
	})
	t.Run("an idle Pod serves the next claim", func(t *testing.T) {
		ns := testBed.env(t, 1)
		m, _ := testBed.manager(t)
		unlabel(t, ns, testBed.pods(t, ns)[0].Name)
		testBed.awaitIdle(t, ns, 1)
		mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
		deleteAll(t, ns)
	})
	t.Run("a label changed to another pool's", func(t *testing.T) {
		ns := testBed.env(t, 1)
		testBed.manager(t)
		pod := testBed.pods(t, ns)[0]
		pod.Labels[v1alpha1.LabelPool] = "another"
		if err := testBed.client.Update(t.Context(), &pod); err != nil {
			t.Fatal(err)
		}
		labelled(t, ns, pod.Name)
		deleteAll(t, ns)
	})
	t.Run("while no controller runs", func(t *testing.T) {
		ns := testBed.env(t, 1)
		m, stop := testBed.manager(t)
		sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
		stop()
		unlabel(t, ns, sb.Pod)
		m, _ = testBed.manager(t)
		deleteAll(t, ns)
		if r := finished(t, m, sb.ID); r.FailureReason != failurePodDeleted {
			t.Errorf("record: %+v", r)
		}
	})
}

// TestForeignPodIsNeverTouched: a Pod that only carries the label of a pool is not a member. It is not counted and
// not deleted by the pool, and no sandbox is put on it.
func TestForeignPodIsNeverTouched(t *testing.T) {
	ns := testBed.env(t, 1)
	m, _ := testBed.manager(t)
	member := testBed.pods(t, ns)[0]
	foreign := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: testImage}}}}
	foreign.Name, foreign.Namespace = "foreign", ns
	foreign.Labels = merged(nil, member.Labels)
	if err := testBed.client.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = testBed.client.Delete(context.Background(), foreign, client.GracePeriodSeconds(0)) })
	await(t, t.Context(), "the foreign Pod to be ready and known", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		p := m.pods[client.ObjectKeyFromObject(foreign)]
		return p != nil && podReady(p.pod)
	})
	sb := mustCreate(t, m, Request{Owner: owner(ns), Env: "env"})
	if sb.Pod != member.Name {
		t.Errorf("the sandbox is on %s", sb.Pod)
	}
	if _, err := m.Create(t.Context(), Request{Owner: owner(ns), Env: "env", StartupTimeout: 50 * time.Millisecond}); code(err) != CodeNoCapacity {
		t.Errorf("a second create: %v", describeError(err))
	}
}
