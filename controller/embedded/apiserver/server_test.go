package apiserver_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/apiserver"
	"navix.sh/agentbox/controller/embedded/apiserver/apiservertest"
)

func init() { utilruntime.Must(v1alpha1.AddToScheme(clientscheme.Scheme)) }

func TestPodLife(t *testing.T) {
	ctx := context.Background()
	c, err := client.NewWithWatch(apiservertest.StartForTest(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace("default"), client.MatchingFields{"spec.nodeName": apiserver.NodeName})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()

	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "host"}}},
	}
	if err := c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.NodeName != apiserver.NodeName || p.Status.Phase != corev1.PodPending {
		t.Errorf("a new Pod is on node %q in phase %q", p.Spec.NodeName, p.Status.Phase)
	}
	p.Status.Phase = corev1.PodRunning
	if err := c.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	stale := p.DeepCopy()
	p.Spec.Containers[0].Image = "other"
	if err := c.Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	stale.Labels = map[string]string{"a": "b"}
	if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("a stale write: %v", err)
	}
	// A deletion waits for the node agent, who confirms it with grace 0.
	if err := c.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil || p.DeletionTimestamp == nil {
		t.Fatalf("a Pod being deleted: %v, %v", p.DeletionTimestamp, err)
	}
	if err := c.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted Pod: %v", err)
	}

	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "default"}, Spec: v1alpha1.SandboxPoolSpec{Replicas: 2}}
	if err := c.Create(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if pool.Spec.PodCreationImagePolicy != v1alpha1.IdleImage {
		t.Errorf("the default image policy is %q", pool.Spec.PodCreationImagePolicy)
	}
}
