package claim

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Reasons of the platform's own endings.
const (
	failureControllerRestarted = "ControllerRestarted"
	failurePodDeleted          = "PodDeleted"
	failurePodFailed           = "PodFailed"
	failureUnexpectedRestart   = "UnexpectedRestart"
	failureTokensLost          = "TokensLost"
	failureIdleTimeout         = "IdleTimeout"
	failureTimeout             = "Timeout"
)

// Messages of endings whose cause is outside.
const (
	claimGone  = "the claim is no longer on its Pod: a former controller had ended it, or somebody removed it"
	podDeleted = "the Pod was deleted: with its env or pool, or by itself"
)

var neverReady = ending{
	status: StatusCanceled, reason: failureControllerRestarted,
	message: "the controller was restarted before the sandbox was ready",
}

// adopt takes over a claim that stands on a Pod and that this process did not make: a running sandbox is routed
// again, one that was never armed is ended (its create died with its process), one that was ending goes on ending.
// Where only envd knows whether it was armed, it is asked.
// The caller holds mu.
func (m *Manager) adopt(p *trackedPod) {
	pod := p.pod
	info := readClaim(pod)
	if other := m.sandboxes[info.ID]; other != nil {
		m.log.Warn("two Pods carry one sandbox id; the second is left alone", "sandbox", info.ID, "pod", p.key, "holder", other.pod.key)
		return
	}
	sb := newSandbox(m.life, p, info)
	sb.used = true
	sb.private = pod.Annotations[annotationPrivateTraffic] == "true"
	p.sandbox = sb
	m.sandboxes[sb.id] = sb

	phase := phaseOf(pod)
	status := Status(pod.Annotations[v1alpha1.AnnotationStopReason])
	switch {
	case phase == v1alpha1.PodStopping && isFinal(status):
		m.follow(sb)
	case phase == v1alpha1.PodRunning && info.Armed, phase == v1alpha1.PodStarting && info.PodIP != "":
		var err error
		if sb.secrets, err = m.sealer.open(sb.id, pod.Annotations[annotationSecrets]); err != nil {
			m.endLocked(sb, ending{status: StatusFailed, reason: failureTokensLost, message: err.Error()})
			return
		}
		if !info.Armed {
			if m.reviewClaim(sb); !sb.ending {
				m.ask(sb)
			}
			return
		}
		if m.reviewClaim(sb); !sb.ending {
			// Nobody recorded activity while no controller ran.
			sb.touch(m.clock.Now())
			m.resume(sb)
		}
	default:
		m.endLocked(sb, neverReady)
	}
}

// follow continues an end that another process has written on the Pod. The caller holds mu.
func (m *Manager) follow(sb *sandbox) {
	sb.ending = true
	m.unroute(sb.id)
	m.timers.set(sb, time.Time{})
	sb.info = readClaim(sb.pod.pod)
	sb.info.Status = Status(sb.pod.pod.Annotations[v1alpha1.AnnotationStopReason])
	sb.kill(errStopping)
	m.startRelease(sb, false)
}

// podGone ends the claim of a Pod that no longer exists. The caller holds mu.
func (m *Manager) podGone(sb *sandbox, last *corev1.Pod) {
	m.endLocked(sb, ending{status: StatusFailed, reason: podReason(last, failurePodDeleted), message: cmp.Or(last.Status.Message, podDeleted)})
}

// reviewClaim ends a sandbox whose Pod or container did not survive. The caller holds mu.
func (m *Manager) reviewClaim(sb *sandbox) {
	if sb.ending {
		return
	}
	pod := sb.pod.pod
	switch {
	case pod.Labels[v1alpha1.LabelSandboxID] != sb.id:
		// Adopted from an old version of the Pod: a former process has ended it since.
		m.endLocked(sb, ending{status: StatusCanceled, reason: failureControllerRestarted, message: claimGone})
		return
	case phaseOf(pod) == v1alpha1.PodStopping && isFinal(Status(pod.Annotations[v1alpha1.AnnotationStopReason])):
		m.follow(sb)
		return
	case pod.DeletionTimestamp != nil:
		m.endLocked(sb, ending{status: StatusFailed, reason: podReason(pod, failurePodDeleted), message: cmp.Or(pod.Status.Message, podDeleted)})
		return
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		e := ending{status: StatusFailed, reason: podReason(pod, failurePodFailed), message: pod.Status.Message}
		if s := mainStatus(pod); s != nil && s.State.Terminated != nil {
			e.exitCode = &s.State.Terminated.ExitCode
		}
		m.endLocked(sb, e)
		return
	}
	if !sb.info.Armed || sb.info.ContainerID == "" {
		return
	}
	// Only the sandbox's own container counts: a sidecar may restart.
	s := mainStatus(pod)
	if s == nil {
		return
	}
	died := s.State.Terminated
	switch {
	case died != nil:
	case s.ContainerID != "" && s.ContainerID != sb.info.ContainerID, s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
		died = s.LastTerminationState.Terminated
	default:
		return
	}
	e := ending{status: StatusFailed, reason: failureUnexpectedRestart, message: "the sandbox's container was restarted"}
	if died != nil {
		e.exitCode, e.at = &died.ExitCode, m.diedAt(sb, died)
		if died.Reason != "" {
			e.reason = died.Reason
		}
		if died.Message != "" {
			e.message = died.Message
		}
		if died.Reason == v1alpha1.ReasonPlatformStopped {
			e.status, e.exitCode = StatusCompleted, nil // whoever runs the platform has asked for it
		}
	}
	m.endLocked(sb, e)
}

// diedAt is when a sandbox's container ended. The API knows it to the second, rounded down: what was seen within that
// second is told better by the clock, and nothing ends before it was used. The caller holds mu.
func (m *Manager) diedAt(sb *sandbox, died *corev1.ContainerStateTerminated) time.Time {
	now, at := m.clock.Now(), died.FinishedAt.Time
	if at.IsZero() || now.Sub(at) < 2*time.Second {
		return now
	}
	for _, seen := range []time.Time{sb.info.StartedAt, sb.activeAt()} {
		if at.Before(seen) && seen.Before(now) {
			at = seen
		}
	}
	return at.UTC()
}

func podReason(pod *corev1.Pod, fallback string) string {
	if pod.Status.Reason != "" {
		return pod.Status.Reason
	}
	return fallback
}
