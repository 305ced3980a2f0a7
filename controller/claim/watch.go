package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// watch feeds the tracker from the informers until the returned function is called. It returns once everything that
// exists has been seen: nodes, envs and pools first, so that a Pod is judged once, by all that counts.
func (m *Manager) watch(ctx context.Context) (stop func(), err error) {
	var undo []func()
	stop = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, source := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Node{}, handlerOf(m, m.observeNode, func(k types.NamespacedName, _ *corev1.Node) { m.dropNode(k.Name) })},
		{&v1alpha1.SandboxEnv{}, handlerOf(m, m.observeEnv, func(k types.NamespacedName, _ *v1alpha1.SandboxEnv) { delete(m.envs, k) })},
		{&v1alpha1.SandboxPool{}, handlerOf(m, m.observePool, func(k types.NamespacedName, _ *v1alpha1.SandboxPool) { m.dropPool(k) })},
		{&corev1.Pod{}, handlerOf(m, m.observePoolPod, m.forgetPod)},
	} {
		informer, err := m.opts.Cache.GetInformer(ctx, source.object)
		if err != nil {
			return stop, fmt.Errorf("watch %T: %w", source.object, err)
		}
		registration, err := informer.AddEventHandler(source.handler)
		if err != nil {
			return stop, fmt.Errorf("watch %T: %w", source.object, err)
		}
		undo = append(undo, func() { _ = informer.RemoveEventHandler(registration) })
		if !toolscache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
			return stop, context.Cause(ctx)
		}
	}
	return stop, nil
}

func (m *Manager) observePoolPod(pod *corev1.Pod) {
	if pod.Labels[v1alpha1.LabelPool] != "" || m.pods[client.ObjectKeyFromObject(pod)] != nil {
		m.observePod(pod)
	}
}

// forgetPod takes in the end of a watch of a Pod. The last state is nil when the watch missed it.
func (m *Manager) forgetPod(key types.NamespacedName, last *corev1.Pod) {
	p := m.pods[key]
	if p == nil || last != nil && last.UID != p.pod.UID {
		return
	}
	if last != nil && newer(last.ResourceVersion, p.pod.ResourceVersion) {
		p.pod = last
	}
	asked := p.pod.DeletionTimestamp != nil && len(p.pod.Finalizers) == 0
	pool := p.pod.Labels[v1alpha1.LabelPool]
	if asked || !m.spawnLocked(func() { m.confirmGone(p, pool) }) {
		m.dropPod(p)
	}
}

// confirmGone drops a Pod that left the watch without having been asked to go, unless only the label that is watched
// was taken from it: the Pod gets that back, and what runs in it goes on.
func (m *Manager) confirmGone(p *trackedPod, pool string) {
	restore := func(pod *corev1.Pod) error {
		if pod.Labels[v1alpha1.LabelPool] != "" {
			return errUnchanged
		}
		pod.Labels[v1alpha1.LabelPool] = pool
		return nil
	}
	backoff := 5 * time.Millisecond
	for {
		pod, err := m.read(m.life, p)
		if errors.Is(err, errPodGone) {
			m.mu.Lock()
			m.dropPod(p)
			m.mu.Unlock()
			return
		}
		if err == nil {
			_, err = m.put(m.life, pod, restore)
		}
		if err == nil {
			m.log.Warn("a Pod had lost the label of its pool; it has it back", "pod", p.key, "label", v1alpha1.LabelPool)
		}
		if err == nil || errors.Is(err, errUnchanged) || !m.sleep(m.life, backoff) {
			return
		}
		backoff = min(2*backoff, 2*time.Second)
	}
}

// handlerOf adapts typed functions, called with the lock held, to an informer's handler.
func handlerOf[T client.Object](m *Manager, observe func(T), forget func(types.NamespacedName, T)) toolscache.ResourceEventHandler {
	take := func(obj any) {
		if o, ok := obj.(T); ok {
			m.mu.Lock()
			defer m.mu.Unlock()
			observe(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, obj any) { take(obj) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if o, ok := obj.(T); ok {
				m.mu.Lock()
				defer m.mu.Unlock()
				forget(client.ObjectKeyFromObject(o), o)
			}
		},
	}
}
