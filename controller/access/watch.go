package access

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

const (
	lastUsedEvery = time.Minute
	lastUsedGrace = 3 * time.Second
)

// NeedLeaderElection makes the store run on every replica: each answers its own requests.
func (s *Store) NeedLeaderElection() bool { return false }

// Start reads and watches the keys until ctx ends. Every minute, and at the end, it writes down when keys were used.
func (s *Store) Start(ctx context.Context) error {
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: s.listWatch(),
		ObjectType:    &corev1.Secret{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.put(obj.(*corev1.Secret)) },
			UpdateFunc: func(_, obj any) { s.put(obj.(*corev1.Secret)) },
			DeleteFunc: func(obj any) {
				if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
					obj = last.Obj
				}
				if secret, ok := obj.(*corev1.Secret); ok {
					s.drop(secret)
				}
			},
		},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	defer func() { <-done }()
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	s.syncOnce.Do(func() { close(s.synced) })

	tick := time.NewTicker(lastUsedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.flushLastUsed(ctx)
			s.forgetGone()
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastUsedGrace)
			defer cancel()
			s.flushLastUsed(end)
			return nil
		}
	}
}

// WaitSynced returns once the keys have been read, or with the error of ctx.
func (s *Store) WaitSynced(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Synced reports whether the keys have been read, for a readiness probe.
func (s *Store) Synced() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

func (s *Store) listWatch() toolscache.ListerWatcher {
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{
			Namespace:     s.namespace,
			LabelSelector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelKeyType: v1alpha1.KeyTypeAPIKey}),
			Raw:           &o,
		}
	}
	return listThenWatch{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			var list corev1.SecretList
			err := s.client.List(ctx, &list, options(o))
			return &list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.client.Watch(ctx, &corev1.SecretList{}, options(o))
		},
	}}
}

// listThenWatch keeps the reflector from reading the list as a stream: keys are few, and not every API server or
// client can.
type listThenWatch struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is what the reflector asks.
func (listThenWatch) IsWatchListSemanticsUnSupported() bool { return true }

// flushLastUsed writes down the uses since the last time. What cannot be written is tried again next time.
func (s *Store) flushLastUsed(ctx context.Context) {
	s.mu.RLock()
	used := maps.Clone(s.used)
	s.mu.RUnlock()
	for id, t := range used {
		stamp := t.UTC().Format(time.RFC3339)
		patch := []byte(`{"metadata":{"annotations":{"` + annotationLastUsed + `":"` + stamp + `"}}}`)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName(id), Namespace: s.namespace}}
		err := s.client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, patch))
		if client.IgnoreNotFound(err) != nil {
			s.log.Debug("the last use of a key is not written down yet", "key", id, "error", err)
			continue
		}
		s.mu.Lock()
		if s.used[id].Equal(t) {
			delete(s.used, id)
		}
		s.mu.Unlock()
	}
}
