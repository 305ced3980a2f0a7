package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/apiserver"
)

var v1alpha1Templates = v1alpha1.GroupVersion.WithResource("sandboxtemplates")

// emptyNamespace deletes what is in a deleted namespace, of every type that is served, and lets the namespace go once
// it is empty.
func (c *Collector) emptyNamespace(ctx context.Context, ns *metav1.PartialObjectMetadata) error {
	if !slices.Contains(ns.Finalizers, apiserver.NamespaceFinalizer) {
		return nil
	}
	_, err := c.client.Resource(namespaces).Patch(ctx, ns.Name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Terminating"}}`), metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("mark the namespace as going: %w", err)
	}
	lists, err := c.discovery.ServerPreferredNamespacedResources()
	if err != nil {
		return fmt.Errorf("list the types in the namespace: %w", err)
	}
	gvrs, err := discovery.GroupVersionResources(discovery.FilteredBy(
		discovery.SupportsAllVerbs{Verbs: []string{"list", "deletecollection"}}, lists))
	if err != nil {
		return fmt.Errorf("list the types in the namespace: %w", err)
	}
	empty := true
	var errs []error
	for gvr := range gvrs {
		left, err := c.deleteAll(ctx, gvr, ns.Name)
		errs = append(errs, err)
		empty = empty && left == 0
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !empty {
		return errWaiting
	}
	current, err := c.client.Resource(namespaces).Get(ctx, ns.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && current.UID != ns.UID) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.removeFinalizer(ctx, itemOf(namespaces, current), current, apiserver.NamespaceFinalizer)
}

// deleteAll deletes every object of a type in a namespace and returns how many are left, waiting for something.
func (c *Collector) deleteAll(ctx context.Context, gvr schema.GroupVersionResource, namespace string) (int, error) {
	policy := metav1.DeletePropagationBackground
	err := c.at(gvr, namespace).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &policy}, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("delete the %s in %s: %w", gvr.Resource, namespace, err)
	}
	left, err := c.at(gvr, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list the %s in %s: %w", gvr.Resource, namespace, err)
	}
	return len(left.Items), nil
}
