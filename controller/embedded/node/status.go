package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// gather is how long a change that nobody waits for may be held back, so that it is written with the next one.
const gather = 40 * time.Millisecond

// report writes the Pod's status when it has changed, and returns when it wants to be called again.
func (w *worker) report(ctx context.Context) time.Duration {
	if w.over || w.state == nil {
		return idlePass
	}
	if w.lastStatus == nil {
		w.lastStatus = w.pod.Status.DeepCopy()
	}
	status := w.status()
	if equality.Semantic.DeepEqual(status, w.lastStatus) {
		w.writeAt = time.Time{}
		return idlePass
	}
	if w.reset.id != "" && w.urgency(status) < failing {
		return resetLimit // one write says that the reset is done
	}
	if w.urgency(status) == routine {
		if w.writeAt.IsZero() {
			w.writeAt = time.Now().Add(gather)
		}
		if wait := time.Until(w.writeAt); wait > 0 {
			return wait
		}
	}
	w.writeAt = time.Time{}
	return w.write(ctx, status)
}

type urgency int

const (
	routine urgency = iota
	news            // somebody may wait for it
	failing         // somebody would wait in vain
)

// urgency compares a status with the last one that was written.
func (w *worker) urgency(s *corev1.PodStatus) urgency {
	most := routine
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		if c.State.Terminated != nil || (c.State.Waiting != nil && c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing") {
			if w.reset.id == "" {
				return failing
			}
		}
	}
	for _, c := range s.Conditions {
		if c.Type == corev1.PodInitialized || c.Type == corev1.PodReadyToStartContainers {
			continue
		}
		if last := condition(w.lastStatus, c.Type); last == nil || last.Status != c.Status || last.Message != c.Message && c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
			if last != nil || c.Status == corev1.ConditionTrue && c.Type == corev1.PodReady {
				most = news
			}
		}
	}
	return most
}

func (w *worker) write(ctx context.Context, status *corev1.PodStatus) time.Duration {
	err := w.publish(ctx, status)
	switch {
	case err == nil:
		if w.reset.id == "" {
			w.tell(w.lastStatus, status)
		}
		w.lastStatus = status
		return idlePass
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return idlePass // the Pod has gone, which the watch is about to say
	}
	if ctx.Err() == nil {
		w.log().Error("the status of a Pod is not written", "error", err)
	}
	return retryPass
}

// publish writes the status of this very Pod, whatever else about it has changed meanwhile: as an update of the version
// that was seen last, which is cheap, and where that is not the newest as a patch.
func (w *worker) publish(ctx context.Context, status *corev1.PodStatus) error {
	next := *w.pod
	next.Status = *status
	_, err := w.agent.client.CoreV1().Pods(next.Namespace).UpdateStatus(ctx, &next, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		return err
	}
	return w.patch(ctx, status)
}

func (w *worker) patch(ctx context.Context, status *corev1.PodStatus) error {
	type meta struct {
		UID types.UID `json:"uid"`
	}
	data, err := json.Marshal(struct {
		Metadata meta              `json:"metadata"`
		Status   *corev1.PodStatus `json:"status"`
	}{meta{w.uid}, status})
	if err != nil {
		return err
	}
	_, err = w.agent.client.CoreV1().Pods(w.pod.Namespace).Patch(ctx, w.pod.Name, types.MergePatchType, data, metav1.PatchOptions{}, "status")
	return err
}

// retract takes back a Ready of an earlier life.
func (w *worker) retract(ctx context.Context) {
	if c := condition(&w.pod.Status, corev1.PodReady); c == nil || c.Status != corev1.ConditionTrue {
		return
	}
	w.lastStatus = w.pod.Status.DeepCopy()
	w.write(ctx, w.status())
}

// writeFinal says how the containers ended and deletes the Pod for good. Finalizers may hold the object longer.
func (w *worker) writeFinal(ctx context.Context) error {
	w.lastStatus = w.pod.Status.DeepCopy()
	if s := w.status(); !equality.Semantic.DeepEqual(s, w.lastStatus) {
		if err := w.patch(ctx, s); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	zero := int64(0)
	err := w.agent.client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &w.uid},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func condition(s *corev1.PodStatus, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// status is what a kubelet would say about the Pod now.
func (w *worker) status() *corev1.PodStatus {
	if evicted(w.pod) {
		return w.pod.Status.DeepCopy()
	}
	s := &corev1.PodStatus{
		StartTime: &metav1.Time{Time: w.state.Started.Truncate(time.Second)},
		QOSClass:  w.pod.Status.QOSClass,
	}
	if w.state.IP != "" && (w.currentSandbox() != nil || w.terminating) {
		s.PodIP = w.state.IP
		s.PodIPs = []corev1.PodIP{{IP: w.state.IP}}
	}
	var notInitialized, notReady []string
	for i := range w.pod.Spec.InitContainers {
		spec := &w.pod.Spec.InitContainers[i]
		c := w.container(spec.Name)
		cs := w.containerStatus(spec, c)
		cs.Ready = c.state == ended && c.Ended.ExitCode == 0 || c.ready
		if !cs.Ready && !c.started {
			notInitialized = append(notInitialized, spec.Name)
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, cs)
	}
	for i := range w.pod.Spec.Containers {
		spec := &w.pod.Spec.Containers[i]
		cs := w.containerStatus(spec, w.container(spec.Name))
		if !cs.Ready {
			notReady = append(notReady, spec.Name)
		}
		s.ContainerStatuses = append(s.ContainerStatuses, cs)
	}
	s.Phase = w.phase()
	if w.evicted != "" {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, reasonEvicted, w.evicted
	}
	w.addConditions(s, notInitialized, notReady)
	return s
}

func (w *worker) addConditions(s *corev1.PodStatus, notInitialized, notReady []string) {
	add := func(t corev1.PodConditionType, ok bool, reason, message string) {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue}
		if !ok {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
		}
		s.Conditions = append(s.Conditions, w.since(c))
	}
	finished := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	readyReason, readyMessage := "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", strings.Join(notReady, " "))
	initReason, initMessage := "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(notInitialized, " "))
	switch s.Phase {
	case corev1.PodSucceeded:
		readyReason, readyMessage = "PodCompleted", ""
	case corev1.PodFailed:
		readyReason, readyMessage = "PodFailed", ""
	}
	ready := len(notReady) == 0 && len(notInitialized) == 0 && !finished
	add(corev1.PodReadyToStartContainers, w.currentSandbox() != nil, "", "")
	add(corev1.PodInitialized, len(notInitialized) == 0, initReason, initMessage)
	add(corev1.PodReady, ready, readyReason, readyMessage)
	add(corev1.ContainersReady, ready, readyReason, readyMessage)
	add(corev1.PodScheduled, true, "", "")
	if missing := w.agent.runtime.Missing(); len(missing) > 0 {
		add(conditionLimits, false, "ControllersMissing", "this machine does not let the agent limit: "+strings.Join(missing, ", "))
	}
	if w.evicted != "" {
		s.Conditions = append(s.Conditions, w.since(corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: w.evicted,
		}))
	}
	if c, ok := w.resetCondition(); ok {
		s.Conditions = append(s.Conditions, w.since(c))
	}
}

// since keeps the time of the last transition of a condition that has not changed.
func (w *worker) since(c corev1.PodCondition) corev1.PodCondition {
	c.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	last := w.lastStatus
	if last == nil {
		last = &w.pod.Status
	}
	if old := condition(last, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime, c.LastProbeTime = old.LastTransitionTime, old.LastProbeTime
	}
	return c
}

func (w *worker) phase() corev1.PodPhase {
	if w.sandboxFailedInit() {
		return corev1.PodFailed
	}
	var run, wait, good, bad int
	for i := range w.pod.Spec.Containers {
		c := w.container(w.pod.Spec.Containers[i].Name)
		switch {
		case c.state == running:
			run++
		case c.state == ended && c.Ended.ExitCode == 0:
			good++
		case c.state == ended:
			bad++
		case c.Last != nil:
			run++ // waits to be started again
		default:
			wait++
		}
	}
	policy := w.pod.Spec.RestartPolicy
	switch {
	case wait > 0:
		return corev1.PodPending
	case run > 0 || (policy == corev1.RestartPolicyAlways && !w.terminating) || (policy == corev1.RestartPolicyOnFailure && bad > 0 && !w.terminating):
		return corev1.PodRunning
	case bad > 0:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

func (w *worker) sandboxFailedInit() bool {
	if w.pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return false
	}
	for i := range w.pod.Spec.InitContainers {
		if c := w.container(w.pod.Spec.InitContainers[i].Name); c.state == ended && c.Ended.ExitCode != 0 {
			return true
		}
	}
	return false
}

func (w *worker) containerStatus(spec *corev1.Container, c *container) corev1.ContainerStatus {
	started := c.started
	cs := corev1.ContainerStatus{
		Name: spec.Name, Image: spec.Image, ImageID: c.ImageID, RestartCount: c.Restarts, Ready: c.ready && c.state == running,
		Started: &started,
	}
	if c.Image != "" && c.state != waiting {
		cs.Image = c.Image
	}
	if c.ID != "" {
		cs.ContainerID = containerIDPrefix + c.ID
	} else if c.Previous != "" {
		cs.ContainerID = containerIDPrefix + c.Previous
	}
	if c.Last != nil {
		cs.LastTerminationState.Terminated = seconds(c.Last)
	}
	switch c.state {
	case waiting:
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.reason, Message: c.message}
	case running:
		cs.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.Started.Truncate(time.Second))}
	case ended:
		cs.State.Terminated = seconds(c.Ended)
	}
	return cs
}

// seconds brings times to the precision of the API, so that a status read back equals the one that was written.
func seconds(t *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
	t = t.DeepCopy()
	t.StartedAt.Time = t.StartedAt.Truncate(time.Second)
	t.FinishedAt.Time = t.FinishedAt.Truncate(time.Second)
	return t
}
