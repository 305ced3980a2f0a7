// Package collector removes what nothing holds any more: objects whose owners are gone, and the content of deleted
// namespaces. On a cluster the controller manager does this.
package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// kinds are those that own, or are owned by, something on this platform.
var kinds = map[schema.GroupVersionResource]schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithResource("pods"):                   corev1.SchemeGroupVersion.WithKind("Pod"),
	corev1.SchemeGroupVersion.WithResource("secrets"):                corev1.SchemeGroupVersion.WithKind("Secret"),
	corev1.SchemeGroupVersion.WithResource("configmaps"):             corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"): corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	v1alpha1.GroupVersion.WithResource("sandboxtemplates"):           v1alpha1.GroupVersion.WithKind("SandboxTemplate"),
	v1alpha1.GroupVersion.WithResource("sandboxenvs"):                v1alpha1.GroupVersion.WithKind("SandboxEnv"),
	v1alpha1.GroupVersion.WithResource("sandboxpools"):               v1alpha1.GroupVersion.WithKind("SandboxPool"),
}

var namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")

const (
	byOwner = "owner"
	byUID   = "uid"
	workers = 2
)

// Collector is a garbage collector for the embedded API.
type Collector struct {
	log       *slog.Logger
	client    metadata.Interface
	discovery discovery.DiscoveryInterface
	informers map[schema.GroupVersionResource]cache.SharedIndexInformer
	factory   metadatainformer.SharedInformerFactory
	queue     workqueue.TypedRateLimitingInterface[item]
}

// item is an object to look at.
type item struct {
	resource        schema.GroupVersionResource
	namespace, name string
	uid             types.UID
}

// New makes a collector for the API that config leads to.
func New(config *rest.Config, log *slog.Logger) (*Collector, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the collector's client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the collector's client: %w", err)
	}
	c := &Collector{
		log: log, client: client, discovery: disco,
		informers: map[schema.GroupVersionResource]cache.SharedIndexInformer{},
		factory:   metadatainformer.NewSharedInformerFactory(client, 0),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[item](20*time.Millisecond, 10*time.Second)),
	}
	for gvr := range kinds {
		if err := c.watch(gvr); err != nil {
			return nil, err
		}
	}
	return c, c.watch(namespaces)
}

// Run collects until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	c.factory.Start(ctx.Done())
	defer c.factory.Shutdown()
	for gvr, synced := range c.factory.WaitForCacheSync(ctx.Done()) {
		if !synced && ctx.Err() == nil {
			return fmt.Errorf("the collector could not list %s", gvr)
		}
	}
	done := make(chan struct{})
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for c.next(ctx) {
			}
		}()
	}
	<-ctx.Done()
	c.queue.ShutDown()
	for range workers {
		<-done
	}
	return nil
}

func (c *Collector) watch(gvr schema.GroupVersionResource) error {
	informer := c.factory.ForResource(gvr).Informer()
	c.informers[gvr] = informer
	err := errors.Join(
		informer.SetTransform(skeleton),
		informer.AddIndexers(cache.Indexers{
			byOwner: func(obj any) ([]string, error) {
				var owners []string
				for _, o := range obj.(*metav1.PartialObjectMetadata).OwnerReferences {
					owners = append(owners, string(o.UID))
				}
				return owners, nil
			},
			byUID: func(obj any) ([]string, error) {
				return []string{string(obj.(*metav1.PartialObjectMetadata).UID)}, nil
			},
		}),
	)
	if err != nil {
		return fmt.Errorf("watch %s: %w", gvr.Resource, err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.changed(gvr, obj.(*metav1.PartialObjectMetadata)) },
		UpdateFunc: func(was, obj any) {
			if !equality.Semantic.DeepEqual(held(was), held(obj)) {
				c.changed(gvr, obj.(*metav1.PartialObjectMetadata))
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
				c.deleted(m)
			}
		},
	})
	return err
}

// skeleton keeps what the collector reads.
func skeleton(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers, OwnerReferences: m.OwnerReferences,
	}}, nil
}

// held is what decides whether an object stays. A Pod changes many times while this does not.
func held(obj any) metav1.ObjectMeta {
	m := obj.(*metav1.PartialObjectMetadata)
	return metav1.ObjectMeta{UID: m.UID, DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers, OwnerReferences: m.OwnerReferences}
}

// changed looks at an object when it has owners, or is being deleted and waits for something of ours.
func (c *Collector) changed(gvr schema.GroupVersionResource, m *metav1.PartialObjectMetadata) {
	if len(m.OwnerReferences) > 0 || (m.DeletionTimestamp != nil && len(m.Finalizers) > 0) {
		c.queue.Add(itemOf(gvr, m))
	}
}

// deleted looks at everything that may have waited for the object to go: what it owned, what owned it and is being
// deleted in the foreground, and its namespace.
func (c *Collector) deleted(m *metav1.PartialObjectMetadata) {
	c.each(byOwner, m.UID, func(gvr schema.GroupVersionResource, dependent *metav1.PartialObjectMetadata) {
		c.queue.Add(itemOf(gvr, dependent))
	})
	for _, o := range m.OwnerReferences {
		c.each(byUID, o.UID, func(gvr schema.GroupVersionResource, owner *metav1.PartialObjectMetadata) {
			if owner.DeletionTimestamp != nil {
				c.queue.Add(itemOf(gvr, owner))
			}
		})
	}
	if obj, ok, _ := c.informers[namespaces].GetStore().GetByKey(m.Namespace); ok {
		c.changed(namespaces, obj.(*metav1.PartialObjectMetadata))
	}
}

func (c *Collector) each(index string, uid types.UID, visit func(schema.GroupVersionResource, *metav1.PartialObjectMetadata)) {
	for gvr, informer := range c.informers {
		objs, err := informer.GetIndexer().ByIndex(index, string(uid))
		if err != nil {
			panic(err) // every informer has both indexes
		}
		for _, obj := range objs {
			visit(gvr, obj.(*metav1.PartialObjectMetadata))
		}
	}
}

func itemOf(gvr schema.GroupVersionResource, m metav1.Object) item {
	return item{gvr, m.GetNamespace(), m.GetName(), m.GetUID()}
}

func (c *Collector) next(ctx context.Context) bool {
	it, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(it)
	err := c.process(ctx, it)
	switch {
	case err == nil:
		c.queue.Forget(it)
	case ctx.Err() == nil:
		if !errors.Is(err, errWaiting) {
			c.log.Warn("collect garbage", "resource", it.resource.Resource, "namespace", it.namespace, "name", it.name, "err", err)
		}
		c.queue.AddRateLimited(it)
	}
	return true
}

// resourceOf finds where objects of an owner's kind live.
func resourceOf(o metav1.OwnerReference) (schema.GroupVersionResource, bool) {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, false
	}
	for gvr, gvk := range kinds {
		if gvk.Group == gv.Group && gvk.Kind == o.Kind {
			return gvr, true
		}
	}
	if gv == corev1.SchemeGroupVersion && (o.Kind == "Node" || o.Kind == "Namespace") {
		gvr, _ := meta.UnsafeGuessKindToResource(gv.WithKind(o.Kind))
		return gvr, true
	}
	return schema.GroupVersionResource{}, false
}
