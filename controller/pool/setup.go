// Package pool reconciles SandboxPools: it keeps the wanted number of Pods of the current revision.
//
// MakePlan is pure and decides; the reconciler carries the plan out and keeps expectations, so that neither a lagging
// cache nor a lost answer makes a pool grow past what is wanted.
package pool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Claims is what the pool reconciler asks of the claim path; *claim.Manager is one.
type Claims interface {
	// Waiting is how many claims wait for a Pod of this pool.
	Waiting(namespace, pool string) int
	// WaitingChanged names pools whose number of waiting claims has changed. It may leave changes out that follow
	// one another closely, never the last.
	WaitingChanged() <-chan event.GenericEvent
}

// Options is what the pool reconciler needs beyond the manager.
type Options struct {
	// Claims fills in status.pendingRequests; nil leaves it at 0.
	Claims Claims
}

// indexPool finds the Pods of a pool.
const indexPool = "agentbox.sandbox-pool"

// settleTime gathers the events of one change (a claim writes its Pod several times) into one reconcile.
const settleTime = 20 * time.Millisecond

// Setup adds the pool reconciler to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, indexPool, func(o client.Object) []string {
		if name := poolOf(o); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Pods by pool: %w", err)
	}
	r := &reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), claims: o.Claims,
		// The embedded API serves core/v1 Events only, and clusters serve both.
		events: mgr.GetEventRecorderFor("sandboxpool"), //nolint:staticcheck
		clock:  clock.RealClock{}, expectations: newExpectations(), memory: map[types.NamespacedName]*memory{},
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("sandboxpool").
		For(&v1alpha1.SandboxPool{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&corev1.Pod{}, podHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4})
	if o.Claims != nil {
		b = b.WatchesRawSource(source.Channel(o.Claims.WaitingChanged(), &handler.EnqueueRequestForObject{}))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("pool reconciler: %w", err)
	}
	return nil
}

// poolOf names the pool that made a Pod; empty for a Pod that no pool made, whatever its labels say.
func poolOf(pod metav1.Object) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "SandboxPool" || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return ""
	}
	return owner.Name
}

// podHandler enqueues a Pod's pool, with a short delay that makes one reconcile of a burst.
func podHandler() handler.EventHandler {
	enqueue := func(o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if name := poolOf(o); name != "" {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}, settleTime)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(e.Object, q)
		},
	}
}
