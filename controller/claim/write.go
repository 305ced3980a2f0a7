package claim

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiTimeout bounds one request to the API server.
const apiTimeout = 10 * time.Second

var (
	errPodGone = errors.New("the Pod is gone")
	// errUnchanged is what a change returns when the Pod already says what it would write.
	errUnchanged = errors.New("nothing to write")
)

// changeError is an error of a change function, not of the API server.
type changeError struct{ error }

func (e *changeError) Unwrap() error { return e.error }

// notWritten reports whether an error proves that the API server did not take a write.
func notWritten(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) ||
		apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsTooManyRequests(err)
}

// put writes a changed copy of a Pod once, by compare-and-swap on its resourceVersion. A request is never abandoned
// half way: it runs under its own deadline, so that its outcome is known.
func (m *Manager) put(ctx context.Context, pod *corev1.Pod, change func(*corev1.Pod) error) (*corev1.Pod, error) {
	next := pod.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	if err := change(next); err != nil {
		return nil, &changeError{err}
	}
	if len(next.ManagedFields) > 0 {
		// One empty entry resets the field owners, and an object without any is not tracked further. Nobody applies
		// pool Pods, and the tracking would cost about a sixth of every write on the claim path.
		next.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
	request, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
	defer cancel()
	if err := m.client.Update(request, next); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observePod(next)
	return next, nil
}

// update writes a change that must happen to a Pod whose claim is ours: it starts from the newest version known, and
// on a conflict or a lost answer reads the Pod from the server and decides again. It ends with the write, with
// errPodGone, with the change's own error, or with ctx.
func (m *Manager) update(ctx context.Context, p *trackedPod, change func(*corev1.Pod) error) (*corev1.Pod, error) {
	m.mu.Lock()
	pod, gone := p.pod, p.gone
	m.mu.Unlock()
	backoff := 5 * time.Millisecond
	for !gone {
		written, err := m.put(ctx, pod, change)
		if err == nil {
			return written, nil
		}
		var own *changeError
		switch {
		case errors.Is(err, errUnchanged):
			return pod, nil
		case errors.As(err, &own):
			return nil, own.error
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
			return nil, err
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			if !m.sleep(ctx, backoff) {
				return nil, errors.Join(context.Cause(ctx), err)
			}
			backoff = min(2*backoff, 2*time.Second)
		}
		pod, err = m.read(ctx, p)
		if err != nil {
			return nil, err
		}
	}
	return nil, errPodGone
}

// read gets the Pod from the server, never from the cache, until the server answers.
func (m *Manager) read(ctx context.Context, p *trackedPod) (*corev1.Pod, error) {
	m.mu.Lock()
	uid := p.pod.UID
	m.mu.Unlock()
	backoff := 5 * time.Millisecond
	for {
		pod, err := m.readOnce(ctx, p.key, uid)
		if err == nil || errors.Is(err, errPodGone) {
			return pod, err
		}
		if !m.sleep(ctx, backoff) {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		backoff = min(2*backoff, 2*time.Second)
	}
}

func (m *Manager) readOnce(ctx context.Context, key types.NamespacedName, uid types.UID) (*corev1.Pod, error) {
	request, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var pod corev1.Pod
	err := m.client.Get(request, key, &pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != uid:
		return nil, errPodGone
	case err != nil:
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observePod(&pod)
	return &pod, nil
}

// removeAt deletes a Pod at exactly the version given.
func (m *Manager) removeAt(ctx context.Context, pod *corev1.Pod) error {
	request, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
	defer cancel()
	err := m.client.Delete(request, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}, client.GracePeriodSeconds(1))
	return client.IgnoreNotFound(err)
}

func isConflictOrGone(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// remove deletes a Pod that belongs to a claim that has ended. The UID makes sure that it is that Pod.
func (m *Manager) remove(ctx context.Context, p *trackedPod) error {
	m.mu.Lock()
	pod := p.pod
	m.mu.Unlock()
	request, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
	defer cancel()
	err := m.client.Delete(request, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(1))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// sleep waits, and reports false when ctx ended first.
func (m *Manager) sleep(ctx context.Context, d time.Duration) bool {
	t := m.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// await waits until the Pod satisfies a condition, woken by every change of it.
func (m *Manager) await(ctx context.Context, p *trackedPod, met func(*corev1.Pod) (bool, error)) (*corev1.Pod, error) {
	for {
		m.mu.Lock()
		pod, gone := p.pod, p.gone
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		m.mu.Unlock()
		if gone {
			return nil, errPodGone
		}
		if ok, err := met(pod); ok || err != nil {
			return pod, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
