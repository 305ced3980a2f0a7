package apiserver_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/embedded/apiserver"
)

func TestPodIsBoundAndDefaulted(t *testing.T) {
	c := newClient(t)
	p := newPod(newNamespace(t, c), func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		p.Status.Phase = corev1.PodRunning // not a client's to say
	})
	if err := c.Create(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	container := p.Spec.Containers[0]
	for what, ok := range map[string]bool{
		"node":          p.Spec.NodeName == apiserver.NodeName,
		"phase":         p.Status.Phase == corev1.PodPending,
		"generateName":  strings.HasPrefix(p.Name, "p-") && len(p.Name) > 2,
		"restartPolicy": p.Spec.RestartPolicy == corev1.RestartPolicyAlways,
		"grace":         p.Spec.TerminationGracePeriodSeconds != nil && *p.Spec.TerminationGracePeriodSeconds == 30,
		"protocol":      container.Ports[0].Protocol == corev1.ProtocolTCP,
		"requests":      container.Resources.Requests.Cpu().Value() == 1,
	} {
		if !ok {
			t.Errorf("%s is wrong in %+v", what, p)
		}
	}
}

func TestPodRefusals(t *testing.T) {
	c := newClient(t)
	ns := newNamespace(t, c)
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"no containers":   {func(p *corev1.Pod) { p.Spec.Containers = nil }, "spec.containers"},
		"no image":        {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "" }, "spec.containers[0].image"},
		"bad name":        {func(p *corev1.Pod) { p.Spec.Containers[0].Name = "A_b" }, "spec.containers[0].name"},
		"same name twice": {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) }, "Duplicate"},
		"bad label":       {func(p *corev1.Pod) { p.Labels = map[string]string{"a b": "c"} }, "metadata.labels"},
		"bad policy":      {func(p *corev1.Pod) { p.Spec.RestartPolicy = "Maybe" }, "spec.restartPolicy"},
		"bad port":        {func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 70000}} }, "containerPort"},
		"unknown volume": {func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}, "volumeMounts[0].name"},
		"sub path escapes": {func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "a/../.."}}
		}, "subPath"},
		"more than allowed": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
				Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
			}
		}, "resources.requests[memory]"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(context.Background(), newPod(ns, tt.change))
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an invalid %s", err, tt.want)
			}
		})
	}
	if err := c.Create(context.Background(), newPod("no-such-namespace")); !apierrors.IsNotFound(err) {
		t.Errorf("a Pod in a missing namespace: %v", err)
	}
}

func TestPodUpdate(t *testing.T) {
	ctx, c := context.Background(), newClient(t)
	p := newPod(newNamespace(t, c))
	if err := c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	stale := p.DeepCopy()

	// The main resource sets images and metadata, and no status.
	p.Spec.Containers[0].Image = "other"
	p.Labels = map[string]string{"phase": "starting"}
	p.Status.Phase = corev1.PodFailed
	if err := c.Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.Containers[0].Image != "other" || p.Status.Phase != corev1.PodPending || p.Generation != 2 {
		t.Errorf("after an update: image %s, phase %s, generation %d", p.Spec.Containers[0].Image, p.Status.Phase, p.Generation)
	}
	stale.Labels = map[string]string{"phase": "stale"}
	if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("a stale update: %v", err)
	}
	// Nothing else of the spec changes.
	for name, change := range map[string]func(*corev1.PodSpec){
		"command":   func(s *corev1.PodSpec) { s.Containers[0].Command = []string{"sh"} },
		"container": func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "b", Image: "b"}) },
		"node":      func(s *corev1.PodSpec) { s.NodeName = "elsewhere" },
	} {
		q := p.DeepCopy()
		change(&q.Spec)
		if err := c.Update(ctx, q); !apierrors.IsInvalid(err) {
			t.Errorf("a changed %s: %v", name, err)
		}
	}
	// The status subresource sets the status, and no spec.
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0.1"
	p.Spec.Containers[0].Image = "third"
	if err := c.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	if p.Status.Phase != corev1.PodRunning || p.Spec.Containers[0].Image != "other" {
		t.Errorf("after a status update: phase %s, image %s", p.Status.Phase, p.Spec.Containers[0].Image)
	}
}

func TestPodSelectorsAndWatch(t *testing.T) {
	ctx, c := context.Background(), newClient(t)
	ns := newNamespace(t, c)
	w, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(ns), client.MatchingFields{"spec.nodeName": apiserver.NodeName, "status.phase": "Running"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	p := newPod(ns)
	if err := c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, newPod(ns)); err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	if err := c.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	// A Pod enters the selection by an update of its status.
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*corev1.Pod).Name != p.Name {
		t.Errorf("got %s %v", e.Type, e.Object)
	}
	var l corev1.PodList
	if err := c.List(ctx, &l, client.InNamespace(ns), client.MatchingFields{"status.phase": "Running"}); err != nil || len(l.Items) != 1 {
		t.Errorf("running Pods: %d, %v", len(l.Items), err)
	}
	if err := c.List(ctx, &l, client.InNamespace(ns), client.MatchingFields{"spec.nonsense": "x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestPodDeletion(t *testing.T) {
	ctx, c := context.Background(), newClient(t)
	ns := newNamespace(t, c)
	create := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := newPod(ns, change...)
		if err := c.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	gone := func(p *corev1.Pod) bool {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(p), p))
	}

	t.Run("waits for the node agent", func(t *testing.T) {
		p := create()
		if err := c.Delete(ctx, p); err != nil {
			t.Fatal(err)
		}
		if gone(p) || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
			t.Fatalf("a Pod being deleted: %+v", p.ObjectMeta)
		}
		if err := c.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: new(types.UID)}); !apierrors.IsConflict(err) {
			t.Errorf("another Pod's uid: %v", err)
		}
		if err := c.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID}); err != nil || !gone(p) {
			t.Errorf("confirmed by the node agent: %v", err)
		}
	})
	t.Run("finalizers hold it", func(t *testing.T) {
		p := create(func(p *corev1.Pod) { p.Finalizers = []string{"agentbox.navix.sh/sandbox-protection"} })
		if err := c.Delete(ctx, p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		if gone(p) {
			t.Fatal("the Pod went before its finalizer")
		}
		p.Finalizers = nil
		if err := c.Update(ctx, p); err != nil || !gone(p) {
			t.Errorf("after the finalizer: %v", err)
		}
	})
	t.Run("ended Pods go at once", func(t *testing.T) {
		p := create()
		p.Status.Phase = corev1.PodFailed
		if err := c.Status().Update(ctx, p); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(ctx, p); err != nil || !gone(p) {
			t.Errorf("a failed Pod: %v", err)
		}
	})
	t.Run("preconditions", func(t *testing.T) {
		p := create()
		old := p.ResourceVersion
		p.Annotations = map[string]string{"claimed": "yes"}
		if err := c.Update(ctx, p); err != nil {
			t.Fatal(err)
		}
		err := c.Delete(ctx, p, &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID, ResourceVersion: &old}})
		if !apierrors.IsConflict(err) {
			t.Errorf("a deletion of what was: %v", err)
		}
	})
}
