// Package env reconciles SandboxEnvs: it renders the member pools of the local cluster segment from the template and
// keeps their scaling groups and status.
package env

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Options is what the env reconciler needs beyond the manager.
type Options struct {
	// ClusterID selects the segment of spec.clusters that this controller owns.
	ClusterID string
	// Size resolves an instance type and a multiplier to the size of one Pod, and reports whether the type is declared;
	// nil declares none.
	Size func(instanceType string, multiplier int32) (corev1.ResourceRequirements, bool)
}

const (
	// indexTemplate finds the envs of a template.
	indexTemplate = "agentbox.template"
	// settleTime gathers the status changes of an env's pools into one reconcile.
	settleTime = 250 * time.Millisecond
)

// Setup adds the env reconciler to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	if o.ClusterID == "" {
		return fmt.Errorf("env.Options.ClusterID is required")
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.SandboxEnv{}, indexTemplate, func(o client.Object) []string {
		return []string{o.(*v1alpha1.SandboxEnv).Spec.TemplateRef.Name}
	})
	if err != nil {
		return fmt.Errorf("index envs by template: %w", err)
	}
	r := &reconciler{
		client: mgr.GetClient(), options: o,
		// The embedded API serves core/v1 Events only, and clusters serve both.
		events: mgr.GetEventRecorderFor("sandboxenv"), //nolint:staticcheck
	}
	secrets := &metav1.PartialObjectMetadata{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err = ctrl.NewControllerManagedBy(mgr).Named("sandboxenv").
		For(&v1alpha1.SandboxEnv{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&v1alpha1.SandboxPool{}, ownerHandler()).
		WatchesMetadata(secrets, ownerHandler()).
		Watches(&v1alpha1.SandboxTemplate{}, handler.EnqueueRequestsFromMapFunc(r.envsOf),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("env reconciler: %w", err)
	}
	return nil
}

// envsOf names the envs that a template's change concerns.
func (r *reconciler) envsOf(ctx context.Context, template client.Object) []reconcile.Request {
	var envs v1alpha1.SandboxEnvList
	if err := r.client.List(ctx, &envs, client.MatchingFields{indexTemplate: template.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "envs of a changed template are not found", "template", template.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(envs.Items))
	for i := range envs.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&envs.Items[i])})
	}
	return requests
}

// ownerHandler enqueues the env that controls an object. A new or deleted one is looked at at once, changes together.
func ownerHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	request := func(o client.Object) (reconcile.Request, bool) {
		owner := metav1.GetControllerOf(o)
		if owner == nil || owner.Kind != "SandboxEnv" || owner.APIVersion != v1alpha1.GroupVersion.String() {
			return reconcile.Request{}, false
		}
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}, true
	}
	now := func(o client.Object, q queue) {
		if r, ok := request(o); ok {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { now(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { now(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if r, ok := request(e.ObjectNew); ok {
				q.AddAfter(r, settleTime)
			}
		},
	}
}
