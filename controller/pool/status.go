package pool

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Admission is the outcome of the last attempt to create Pods.
type Admission struct {
	Reason  string // one of v1alpha1.ReasonAdmission… or ReasonResourceQuotaExhausted
	Message string
}

// Failing is what is known of Pods that have died one after another. The zero value is a pool whose Pods live.
type Failing struct {
	// Times is how often in a row Pods were found dead.
	Times int
	// Last is when that was last, and Why says how the Pod had died.
	Last time.Time
	Why  string
	// HoldUntil is when the pool makes new Pods again.
	HoldUntil time.Time
}

func (f *Failing) String() string {
	what := "a Pod has failed"
	if f.Times > 1 {
		what = fmt.Sprintf("Pods have failed %d times in a row", f.Times)
	}
	return what + "; no new one is made before " + f.HoldUntil.UTC().Format(time.RFC3339)
}

// observe works out the status of a pool from its Pods. It keeps what the autoscaler remembers.
func observe(p *v1alpha1.SandboxPool, revision string, pods []Pod, hashes map[string]int, waiting int, admitted Admission, failing Failing) v1alpha1.SandboxPoolStatus {
	s := *p.Status.DeepCopy()
	s.ObservedGeneration = p.Generation
	s.IdleReplicas, s.UnavailableIdleReplicas, s.RunningReplicas = 0, 0, 0
	s.StartingReplicas, s.StoppingReplicas, s.FailedReplicas, s.UpdatedReplicas = 0, 0, 0, 0
	current := int32(0)
	for i := range pods {
		pod := &pods[i]
		if pod.Terminating {
			continue
		}
		current++
		if !pod.Stale {
			s.UpdatedReplicas++
		}
		switch {
		case pod.Dead:
			s.FailedReplicas++
		case pod.Phase == v1alpha1.PodRunning:
			s.RunningReplicas++
		case pod.Phase == v1alpha1.PodStarting:
			s.StartingReplicas++
		case pod.Phase == v1alpha1.PodStopping:
			s.StoppingReplicas++
		default:
			s.IdleReplicas++
			if !pod.Ready {
				s.UnavailableIdleReplicas++
			}
		}
	}
	s.UpdateRevision, s.CurrentRevision = revision, ""
	if len(hashes) == 1 {
		for h := range hashes {
			s.CurrentRevision = h
		}
	}
	s.PendingRequests = int32(waiting)
	s.Phase = phase(p, &s, current, failing)
	setSelectors(p.Name, &s)
	setConditions(p, &s, current, admitted, failing)
	return s
}

// phase sums the pool up; the first that applies wins.
func phase(p *v1alpha1.SandboxPool, s *v1alpha1.SandboxPoolStatus, current int32, failing Failing) v1alpha1.PoolPhase {
	switch desired := p.Spec.Replicas; {
	case p.DeletionTimestamp != nil:
		return v1alpha1.PoolTerminating
	case desired == 0 && current == 0:
		return v1alpha1.PoolPending
	case current < desired && failing.Times > 1:
		return v1alpha1.PoolDegraded // it does not get there
	case current < desired:
		return v1alpha1.PoolScalingUp
	case current > desired:
		return v1alpha1.PoolScalingDown
	case s.UnavailableIdleReplicas > 0 || s.FailedReplicas > 0:
		return v1alpha1.PoolDegraded
	default:
		return v1alpha1.PoolReady
	}
}

func setSelectors(pool string, s *v1alpha1.SandboxPoolStatus) {
	s.Selector = v1alpha1.LabelPool + "=" + pool
	s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelPool: pool}}
	s.PhaseSelectors = map[string]string{"all": s.Selector}
	for _, ph := range []v1alpha1.PodPhase{
		v1alpha1.PodIdle, v1alpha1.PodRunning, v1alpha1.PodStarting, v1alpha1.PodStopping, v1alpha1.PodFailed,
	} {
		s.PhaseSelectors[string(ph)] = s.Selector + "," + v1alpha1.LabelPhase + "=" + string(ph)
	}
}

func setConditions(p *v1alpha1.SandboxPool, s *v1alpha1.SandboxPoolStatus, current int32, admitted Admission, failing Failing) {
	set := func(kind string, ok bool, reason, message string) {
		status := metav1.ConditionFalse
		if ok {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: p.Generation,
		})
	}
	desired := p.Spec.Replicas
	ready := s.IdleReplicas - s.UnavailableIdleReplicas
	counts := fmt.Sprintf("%d of %d Pods, %d idle and ready", current, desired, ready)
	switch {
	case current < desired:
		set(v1alpha1.PoolConditionAvailable, false, v1alpha1.ReasonScalingUp, counts)
	case ready > 0:
		set(v1alpha1.PoolConditionAvailable, true, v1alpha1.ReasonIdlePodsAvailable, counts)
	default:
		set(v1alpha1.PoolConditionAvailable, false, v1alpha1.ReasonNoIdlePodsAvailable, counts)
	}
	switch {
	case current < desired:
		set(v1alpha1.PoolConditionScaling, true, v1alpha1.ReasonScalingUp, counts)
	case current > desired:
		set(v1alpha1.PoolConditionScaling, true, v1alpha1.ReasonScalingDown, counts)
	default:
		set(v1alpha1.PoolConditionScaling, false, v1alpha1.ReasonReplicasReady, counts)
	}
	unhealthy, failed := s.UnavailableIdleReplicas, s.FailedReplicas
	health := fmt.Sprintf("%d idle Pods are not ready, %d have failed", unhealthy, failed)
	switch {
	case failing.Times > 0:
		set(v1alpha1.PoolConditionDegraded, true, v1alpha1.ReasonPodsFailing, fmt.Sprintf("%s; the last: %s", &failing, failing.Why))
	case unhealthy > 0 && failed > 0:
		set(v1alpha1.PoolConditionDegraded, true, v1alpha1.ReasonUnhealthyAndFailedPods, health)
	case unhealthy > 0:
		set(v1alpha1.PoolConditionDegraded, true, v1alpha1.ReasonUnhealthyIdlePods, health)
	case failed > 0:
		set(v1alpha1.PoolConditionDegraded, true, v1alpha1.ReasonFailedPodsPresent, health)
	default:
		set(v1alpha1.PoolConditionDegraded, false, v1alpha1.ReasonAllPodsHealthy, "every Pod is healthy")
	}
	if admitted.Reason != "" {
		set(v1alpha1.PoolConditionAdmitted, admitted.Reason == v1alpha1.ReasonAdmissionGranted, admitted.Reason, admitted.Message)
	}
}

// viewOf reduces a Pod to what planner and status need.
func viewOf(pod *corev1.Pod, revision string) Pod {
	v := Pod{
		Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Created: pod.CreationTimestamp.Time,
		Phase:       v1alpha1.PodPhase(pod.Labels[v1alpha1.LabelPhase]),
		Stale:       pod.Labels[v1alpha1.LabelTemplateHash] != revision,
		Terminating: pod.DeletionTimestamp != nil,
	}
	claimed := pod.Labels[v1alpha1.LabelSandboxID] != ""
	switch v.Phase {
	case v1alpha1.PodStarting, v1alpha1.PodRunning, v1alpha1.PodStopping:
		v.Dead = !claimed // the claim was torn off by hand; what ran in the Pod is unknown
	case v1alpha1.PodFailed:
		v.Dead = !claimed
	default:
		v.Phase = v1alpha1.PodIdle
		ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		v.Dead = ended && !claimed
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			v.Ready, v.ReadySince = true, c.LastTransitionTime.Time
		}
	}
	v.Serves = claimed && v.Phase == v1alpha1.PodRunning && v.Ready
	if v.Dead {
		v.Why = whyDead(pod)
	}
	return v
}

// whyDead says how a Pod ended, in the words of who ended it.
func whyDead(pod *corev1.Pod) string {
	if pod.Status.Reason != "" || pod.Status.Message != "" {
		return clip(strings.Trim(pod.Status.Reason+": "+pod.Status.Message, ": "))
	}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		if end := c.State.Terminated; end != nil {
			return clip(strings.TrimRight(fmt.Sprintf("container %s ended with exit code %d (%s): %s", c.Name, end.ExitCode, end.Reason, end.Message), ": "))
		}
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return "it ended as " + string(pod.Status.Phase)
	}
	return "it carries the marks of a sandbox without the sandbox"
}

// clip keeps what a container wrote short: it goes into a condition.
func clip(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
