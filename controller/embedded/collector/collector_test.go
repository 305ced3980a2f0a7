package collector_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/apiserver/apiservertest"
)

var config *rest.Config

func TestMain(m *testing.M) {
	utilruntime.Must(v1alpha1.AddToScheme(clientscheme.Scheme))
	os.Exit(apiservertest.Main(m, func(c *rest.Config) { config = c }))
}

// world is a namespace with the means to fill it.
type world struct {
	t  *testing.T
	c  client.WithWatch
	ns *corev1.Namespace
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}}
	w.create(w.ns)
	return w
}

func (w *world) create(obj client.Object) {
	w.t.Helper()
	if err := w.c.Create(context.Background(), obj); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pool(name string) *v1alpha1.SandboxPool {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns.Name}}
	w.create(p)
	return p
}

func (w *world) secret(name string, owners ...metav1.OwnerReference) *corev1.Secret {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns.Name, OwnerReferences: owners}}
	w.create(s)
	return s
}

func (w *world) delete(obj client.Object, policy metav1.DeletionPropagation) {
	w.t.Helper()
	if err := w.c.Delete(context.Background(), obj, client.PropagationPolicy(policy)); err != nil {
		w.t.Fatal(err)
	}
}

// await waits until ok holds for the object, watching it; ok sees nil when the object is gone.
func (w *world) await(what string, obj client.Object, list client.ObjectList, ok func(client.Object) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	sel := fields.OneTermEqualSelector("metadata.name", obj.GetName())
	for ctx.Err() == nil {
		events, err := w.c.Watch(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFieldsSelector{Selector: sel})
		if err != nil {
			w.t.Fatal(err)
		}
		err = w.c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) && ok(nil) || err == nil && ok(obj) {
			events.Stop()
			return
		}
		for e := range events.ResultChan() {
			if now, isObject := e.Object.(client.Object); e.Type == watch.Deleted && ok(nil) || e.Type != watch.Deleted && isObject && ok(now) {
				events.Stop()
				if err := w.c.Get(ctx, client.ObjectKeyFromObject(obj), obj); client.IgnoreNotFound(err) != nil {
					w.t.Fatal(err)
				}
				return
			}
		}
	}
	w.t.Fatalf("%s did not happen", what)
}

func gone(obj client.Object) bool { return obj == nil }

func ownedBy(p *v1alpha1.SandboxPool) metav1.OwnerReference {
	return *metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("SandboxPool"))
}

func TestDependentsFollowTheirOwner(t *testing.T) {
	w := newWorld(t)
	pool := w.pool("pool")
	dependent, free := w.secret("dependent", ownedBy(pool)), w.secret("free")
	w.delete(pool, metav1.DeletePropagationBackground)
	w.await("the collection", dependent, &corev1.SecretList{}, gone)
	if err := w.c.Get(context.Background(), client.ObjectKeyFromObject(free), free); err != nil {
		t.Errorf("an object without an owner: %v", err)
	}
}

// An owner of the same name with another uid is another owner.
func TestOwnerIsCheckedByUID(t *testing.T) {
	w := newWorld(t)
	pool := w.pool("pool")
	other := ownedBy(pool)
	other.UID = types.UID("00000000-0000-0000-0000-000000000000")
	w.await("the collection", w.secret("orphan", other), &corev1.SecretList{}, gone)
	// One owner that exists is enough, and the other is forgotten.
	both := w.secret("both", other, metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxPool", Name: pool.Name, UID: pool.UID})
	w.await("the clean-up of references", both, &corev1.SecretList{}, func(obj client.Object) bool {
		return obj != nil && len(obj.GetOwnerReferences()) == 1 && obj.GetOwnerReferences()[0].UID == pool.UID
	})
}

// A Pod that a node agent has to stop first goes its own way, and its owner in the foreground waits for it.
func TestForegroundDeletionWaits(t *testing.T) {
	w := newWorld(t)
	pool := w.pool("pool")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: w.ns.Name, OwnerReferences: []metav1.OwnerReference{ownedBy(pool)}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "host"}}},
	}
	w.create(pod)
	w.delete(pool, metav1.DeletePropagationForeground)
	w.await("the deletion of the Pod", pod, &corev1.PodList{}, func(obj client.Object) bool { return obj != nil && obj.GetDeletionTimestamp() != nil })
	if err := w.c.Get(context.Background(), client.ObjectKeyFromObject(pool), pool); err != nil {
		t.Fatalf("the owner went before its dependent: %v", err)
	}
	if err := w.c.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.await("the deletion of the pool", pool, &v1alpha1.SandboxPoolList{}, gone)
}

func TestOrphans(t *testing.T) {
	w := newWorld(t)
	pool := w.pool("pool")
	dependent := w.secret("dependent", ownedBy(pool))
	w.delete(pool, metav1.DeletePropagationOrphan)
	w.await("the deletion of the pool", pool, &v1alpha1.SandboxPoolList{}, gone)
	w.await("the release", dependent, &corev1.SecretList{}, func(obj client.Object) bool {
		return obj != nil && len(obj.GetOwnerReferences()) == 0 && obj.GetDeletionTimestamp() == nil
	})
}

func TestNamespaceGoesWithItsContent(t *testing.T) {
	w := newWorld(t)
	held := w.secret("held")
	held.Finalizers = []string{"example.com/hold"}
	if err := w.c.Update(context.Background(), held); err != nil {
		t.Fatal(err)
	}
	pool := w.pool("pool")
	w.delete(w.ns, metav1.DeletePropagationBackground)
	w.await("the deletion of the pool", pool, &v1alpha1.SandboxPoolList{}, gone)
	w.await("the end of the namespace's activity", w.ns, &corev1.NamespaceList{}, func(obj client.Object) bool {
		ns, ok := obj.(*corev1.Namespace)
		return ok && ns.Status.Phase == corev1.NamespaceTerminating
	})
	late := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: w.ns.Name}}
	if err := w.c.Create(context.Background(), late); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("a Secret in a namespace that goes: %v", err)
	}
	w.await("the deletion of the Secret", held, &corev1.SecretList{}, func(obj client.Object) bool { return obj != nil && obj.GetDeletionTimestamp() != nil })
	held.Finalizers = nil
	if err := w.c.Update(context.Background(), held); err != nil {
		t.Fatal(err)
	}
	w.await("the deletion of the namespace", w.ns, &corev1.NamespaceList{}, gone)

	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := w.c.Delete(context.Background(), system); !apierrors.IsForbidden(err) {
		t.Errorf("the platform's own namespace: %v", err)
	}
}
