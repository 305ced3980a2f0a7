package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// resetLimit bounds how long a reset Pod may take to be ready again.
const resetLimit = 60 * time.Second

// resetState is a reset under way, or one that has failed.
type resetState struct {
	id    string // under way
	since time.Time
	// fresh is a reset that was asked for while the Pod had no sandbox: the new one has nothing to be reset.
	fresh string

	failedID string
	failure  string
}

// beginReset brings a used Pod back to the state of a new one, when its annotation asks for it: every container and
// what it left in memory ends, and writable layers and volumes are made anew. The sandbox itself, its address and its
// images stay.
func (w *worker) beginReset(ctx context.Context) {
	id := w.pod.Annotations[v1alpha1.AnnotationResetID]
	if id == "" || id == w.state.ResetDone || id == w.reset.id || id == w.reset.failedID {
		return
	}
	w.reset.id, w.reset.since = id, time.Now()
	if id == w.reset.fresh {
		w.reset.fresh = ""
		return
	}
	if err := w.wipe(ctx); err != nil {
		w.failReset(err.Error())
	}
}

func (w *worker) wipe(ctx context.Context) error {
	var all []*container
	for _, c := range w.containers {
		all = append(all, c)
	}
	if err := w.kill(ctx, all...); err != nil {
		return fmt.Errorf("end the containers: %w", err)
	}
	p := w.currentSandbox()
	for _, c := range all {
		for _, id := range []string{c.ID, c.Previous} {
			if id == "" {
				continue
			}
			if err := p.Remove(ctx, id); err != nil {
				return fmt.Errorf("remove a container: %w", err)
			}
		}
		// Not a crash: the count of restarts stays, and nothing of the former instances is shown.
		*c.containerState = containerState{Restarts: c.Restarts}
		*c = container{containerState: c.containerState, reason: "ContainerCreating"}
	}
	if err := p.WipeMemoryVolumes(ctx); err != nil {
		return fmt.Errorf("empty the memory volumes: %w", err)
	}
	if err := w.wipeVolumes(); err != nil {
		return fmt.Errorf("empty the volumes: %w", err)
	}
	w.forgetEviction()
	// The start that follows puts it on record; until then the record still asks for this reset.
	return nil
}

// endReset completes a reset once every container is ready, or gives it up.
func (w *worker) endReset() {
	if w.reset.id == "" {
		return
	}
	for i := range w.pod.Spec.Containers {
		c := w.container(w.pod.Spec.Containers[i].Name)
		switch {
		case c.state == ended || (c.state == waiting && c.Ended == nil && c.Last != nil):
			w.failReset(fmt.Sprintf("container %s ended while it started again: %s", w.pod.Spec.Containers[i].Name, c.message))
			return
		case c.state != running || !c.ready:
			if time.Since(w.reset.since) > resetLimit {
				w.failReset(fmt.Sprintf("container %s was not ready within %s", w.pod.Spec.Containers[i].Name, resetLimit))
			}
			return
		}
	}
	w.state.ResetDone = w.reset.id
	if err := w.save(); err != nil {
		w.failReset(err.Error())
		return
	}
	w.reset.id = ""
}

func (w *worker) failReset(why string) {
	w.log().Error("a used Pod cannot be reset", "reset", w.reset.id, "reason", why)
	w.reset.failedID, w.reset.failure, w.reset.id = w.reset.id, why, ""
}

// resetCondition is what the Pod's status says about resets; ok is false when it says nothing.
func (w *worker) resetCondition() (c corev1.PodCondition, ok bool) {
	c = corev1.PodCondition{Type: v1alpha1.PodConditionReset, LastTransitionTime: metav1.Now()}
	switch {
	case w.reset.failedID != "" && w.reset.failedID == w.pod.Annotations[v1alpha1.AnnotationResetID]:
		c.Status, c.Reason = corev1.ConditionFalse, "ResetFailed"
		c.Message = w.reset.failedID + ": " + w.reset.failure
	case w.state.ResetDone != "":
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "ResetDone", w.state.ResetDone
	default:
		return c, false
	}
	return c, true
}
