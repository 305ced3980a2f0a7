package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

// A PersistentVolumeClaim on this platform is a directory of the node: bound as soon as it exists, deleted with the
// claim. Its size is not limited.

func (a *Agent) claimDir(uid types.UID) string { return filepath.Join(a.dir, "claims", string(uid)) }

// watchClaims binds the claims of all namespaces until the agent stops.
func (a *Agent) watchClaims(ctx context.Context) error {
	lw := cache.NewListWatchFromClient(a.client.CoreV1().RESTClient(), "persistentvolumeclaims", corev1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedInformer(lw, &corev1.PersistentVolumeClaim{}, 0)
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.bindClaim(obj.(*corev1.PersistentVolumeClaim)) },
		UpdateFunc: func(_, obj any) { a.bindClaim(obj.(*corev1.PersistentVolumeClaim)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if c, ok := obj.(*corev1.PersistentVolumeClaim); ok {
				a.deleteClaim(c.UID)
			}
		},
	})
	if err != nil {
		return err
	}
	a.wg.Go(func() { informer.RunWithContext(a.life) })
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("list the volume claims: %w", context.Cause(ctx))
	}
	// Claims that were deleted while no agent ran.
	known := map[string]bool{}
	for _, obj := range informer.GetStore().List() {
		known[string(obj.(*corev1.PersistentVolumeClaim).UID)] = true
	}
	entries, err := os.ReadDir(filepath.Join(a.dir, "claims"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !known[e.Name()] {
			a.deleteClaim(types.UID(e.Name()))
		}
	}
	return nil
}

func (a *Agent) bindClaim(c *corev1.PersistentVolumeClaim) {
	if c.Status.Phase == corev1.ClaimBound || c.DeletionTimestamp != nil {
		return
	}
	c = c.DeepCopy()
	a.wg.Go(func() {
		for a.life.Err() == nil {
			err := a.bind(a.life, c)
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return // a conflict means that a newer version is on its way here
			}
			a.log.Error("a volume claim is not bound yet", "claim", c.Namespace+"/"+c.Name, "error", err)
			select {
			case <-a.life.Done():
			case <-time.After(time.Second):
			}
		}
	})
}

func (a *Agent) bind(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	dir := a.claimDir(c.UID)
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	if ids := a.runtime.IDs(); !ids.Single() {
		if err := os.Lchown(dir, ids.Base, ids.Base); err != nil {
			return err
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	c.Status.Phase = corev1.ClaimBound
	c.Status.AccessModes = c.Spec.AccessModes
	c.Status.Capacity = c.Spec.Resources.Requests
	_, err := a.client.CoreV1().PersistentVolumeClaims(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
	return err
}

func (a *Agent) deleteClaim(uid types.UID) {
	a.wg.Go(func() {
		if err := namespaces.RemoveTree(a.claimDir(uid)); err != nil {
			a.log.Error("the directory of a deleted volume claim is left", "error", err)
		}
	})
}

// claimVolume is the volume that a Pod's reference to a claim names.
func (w *worker) claimVolume(ctx context.Context, ref *corev1.PersistentVolumeClaimVolumeSource) (volume, error) {
	c, err := w.agent.client.CoreV1().PersistentVolumeClaims(w.pod.Namespace).Get(ctx, ref.ClaimName, metav1.GetOptions{})
	if err != nil {
		return volume{}, err
	}
	if c.Status.Phase != corev1.ClaimBound {
		return volume{}, fmt.Errorf("the claim %s is not bound yet", ref.ClaimName)
	}
	return volume{source: w.agent.claimDir(c.UID), readOnly: ref.ReadOnly}, nil
}
