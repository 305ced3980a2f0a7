package collector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// errWaiting means that something else has to happen first; it is not worth a line in the log.
var errWaiting = errors.New("waiting for other objects to go")

// process brings one object a step further. It reads the object and its owners from the API and not from the cache,
// so that an old cache never deletes anything.
func (c *Collector) process(ctx context.Context, it item) error {
	m, err := c.at(it.resource, it.namespace).Get(ctx, it.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && m.UID != it.uid) {
		return nil
	}
	if err != nil {
		return err
	}
	if m.DeletionTimestamp != nil {
		switch {
		case it.resource == namespaces:
			return c.emptyNamespace(ctx, m)
		case slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents):
			return c.orphanDependents(ctx, it, m)
		case slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents):
			return c.deleteDependents(ctx, it, m)
		}
		return nil
	}
	return c.checkOwners(ctx, it, m)
}

func (c *Collector) at(gvr schema.GroupVersionResource, namespace string) metadata.ResourceInterface {
	if namespace == "" {
		return c.client.Resource(gvr)
	}
	return c.client.Resource(gvr).Namespace(namespace)
}

// checkOwners deletes an object none of whose owners exists, and drops the references to owners that do not where
// another one does. An owner that is being deleted in the foreground does not hold its dependents.
func (c *Collector) checkOwners(ctx context.Context, it item, m *metav1.PartialObjectMetadata) error {
	var solid, dangling []metav1.OwnerReference
	foreground := false
	for _, o := range m.OwnerReferences {
		owner, err := c.owner(ctx, m.Namespace, o)
		switch {
		case err != nil:
			return err
		case owner == nil:
			dangling = append(dangling, o)
		case owner.DeletionTimestamp != nil && slices.Contains(owner.Finalizers, metav1.FinalizerDeleteDependents):
			foreground = true
			dangling = append(dangling, o)
		default:
			solid = append(solid, o)
		}
	}
	if len(dangling) == 0 {
		return nil
	}
	if len(solid) > 0 {
		return c.patchMetadata(ctx, it, m, "ownerReferences", solid)
	}
	policy := metav1.DeletePropagationBackground
	if foreground && c.hasDependents(m.UID) {
		policy = metav1.DeletePropagationForeground
	}
	return c.delete(ctx, it, m, policy)
}

// owner returns nil when the owner is known not to exist. An owner of a kind that is not watched counts as existing:
// what is not understood is not deleted.
func (c *Collector) owner(ctx context.Context, namespace string, o metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	unknown := &metav1.PartialObjectMetadata{}
	gvr, ok := resourceOf(o)
	if !ok {
		return unknown, nil
	}
	if gvr == v1alpha1Templates || gvr.Resource == "nodes" || gvr.Resource == "namespaces" {
		namespace = ""
	} else if namespace == "" {
		return unknown, nil // a cluster-scoped object cannot be owned by a namespaced one
	}
	m, err := c.at(gvr, namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && m.UID != o.UID) {
		return nil, nil
	}
	return m, err
}

func (c *Collector) hasDependents(uid types.UID) bool {
	found := false
	c.each(byOwner, uid, func(schema.GroupVersionResource, *metav1.PartialObjectMetadata) { found = true })
	return found
}

// deleteDependents finishes a foreground deletion: the object goes once those of its dependents that block it went.
func (c *Collector) deleteDependents(ctx context.Context, it item, m *metav1.PartialObjectMetadata) error {
	blocked := false
	var errs []error
	c.each(byOwner, m.UID, func(gvr schema.GroupVersionResource, dependent *metav1.PartialObjectMetadata) {
		for _, o := range dependent.OwnerReferences {
			if o.UID == m.UID && o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion {
				blocked = true
			}
		}
		if dependent.DeletionTimestamp == nil {
			if err := c.process(ctx, itemOf(gvr, dependent)); err != nil {
				errs = append(errs, err)
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if blocked {
		return nil // the deletion of the last dependent brings the object back here
	}
	return c.removeFinalizer(ctx, it, m, metav1.FinalizerDeleteDependents)
}

// orphanDependents lets go of the dependents of an object that was deleted without them.
func (c *Collector) orphanDependents(ctx context.Context, it item, m *metav1.PartialObjectMetadata) error {
	var errs []error
	c.each(byOwner, m.UID, func(gvr schema.GroupVersionResource, cached *metav1.PartialObjectMetadata) {
		dependent, err := c.at(gvr, cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
		if err == nil {
			kept := slices.DeleteFunc(slices.Clone(dependent.OwnerReferences), func(o metav1.OwnerReference) bool { return o.UID == m.UID })
			err = c.patchMetadata(ctx, itemOf(gvr, dependent), dependent, "ownerReferences", kept)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.removeFinalizer(ctx, it, m, metav1.FinalizerOrphanDependents)
}

func (c *Collector) delete(ctx context.Context, it item, m *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	err := c.at(it.resource, it.namespace).Delete(ctx, it.name, metav1.DeleteOptions{
		PropagationPolicy: &policy,
		// An object that changed since it was read may have found an owner.
		Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if apierrors.IsConflict(err) {
		return errWaiting
	}
	return err
}

func (c *Collector) removeFinalizer(ctx context.Context, it item, m *metav1.PartialObjectMetadata, name string) error {
	kept := slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == name })
	return c.patchMetadata(ctx, it, m, "finalizers", kept)
}

// patchMetadata replaces one field of the metadata, unless the object changed since it was read.
func (c *Collector) patchMetadata(ctx context.Context, it item, m *metav1.PartialObjectMetadata, field string, value any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": m.UID, "resourceVersion": m.ResourceVersion, field: value,
	}})
	if err != nil {
		return fmt.Errorf("encode %s: %w", field, err)
	}
	_, err = c.at(it.resource, it.namespace).Patch(ctx, it.name, types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if apierrors.IsConflict(err) {
		return errWaiting
	}
	return err
}
