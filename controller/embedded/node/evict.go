package node

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/embedded/runtime"
)

const reasonEvicted = "Evicted"

// evicted reports whether the API knows that a Pod was evicted. Such a Pod stays as it is until it is deleted.
func evicted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == reasonEvicted
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// wiped is how often the Pod has been emptied; take it before measuring what the Pod holds.
func (w *worker) wiped() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wipes
}

// setEviction asks the worker to end its Pod, and says why. It does nothing when the Pod has been emptied since: the
// next sandbox is not to blame for the last.
func (w *worker) setEviction(message string, wipes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wipes == wipes {
		w.eviction = message
		w.poke()
	}
}

// forgetEviction is called when the Pod has been emptied.
func (w *worker) forgetEviction() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wipes++
	w.eviction = ""
}

// evict ends the Pod without grace and frees what it holds. The API hears of it afterwards: while the disk is full it
// may not be able to take anything.
func (w *worker) evict(ctx context.Context, message string) time.Duration {
	w.log().Warn("a Pod is evicted", "reason", message)
	var all []*container
	for _, c := range w.containers {
		all = append(all, c)
	}
	if err := w.kill(ctx, all...); err != nil && !errors.Is(err, runtime.ErrGone) {
		w.log().Error("the containers of an evicted Pod are not ended", "error", err)
		return retryPass
	}
	if err := w.stopSandbox(context.WithoutCancel(ctx)); err != nil {
		w.log().Error("the sandbox of an evicted Pod is not removed", "error", err)
		return retryPass
	}
	w.evicted, w.reset = message, resetState{}
	w.agent.events.Event(w.pod, corev1.EventTypeWarning, reasonEvicted, message)
	return idlePass
}
