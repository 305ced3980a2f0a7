package claim

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/record"
)

// sandbox is a live claim: from the write that made it until its record is durable and its Pod is given back.
type sandbox struct {
	id  string
	pod *trackedPod
	// life ends with the sandbox: nothing routes to it any more.
	life context.Context
	kill context.CancelCauseFunc
	// stopped is closed once the end is written on the Pod (or the Pod is gone).
	stopped chan struct{}
	timer   timerEntry
	// retiming serialises changes of the timeout.
	retiming sync.Mutex
	// lastActive is in Unix nanoseconds; the gateway moves it without the lock.
	lastActive atomic.Int64

	// dialed is set before the first connection into the sandbox is made.
	dialed atomic.Bool

	// The rest is guarded by Manager.mu.
	info    Sandbox
	secrets secrets
	private bool
	// swap is what the main container was before the claim changed its image; nil when it did not.
	swap *containerBefore
	// plain is true when envd was given nothing that has to be kept from the next sandbox.
	plain bool
	// used is true from the moment that the Pod was touched in any way besides its labels and annotations. An unused
	// Pod goes back without a reset.
	used bool
	// ending is set once, by the first cause to end the sandbox.
	ending bool
}

// containerBefore identifies a container, to tell when another one has taken its place.
type containerBefore struct {
	image, containerID, imageID string
}

func newSandbox(life context.Context, p *trackedPod, info Sandbox) *sandbox {
	sb := &sandbox{id: info.ID, pod: p, info: info, stopped: make(chan struct{})}
	sb.life, sb.kill = context.WithCancelCause(life)
	sb.timer.index = -1
	sb.lastActive.Store(info.LastActive.UnixNano())
	return sb
}

// snapshot is the sandbox as callers see it. The caller holds mu.
func (sb *sandbox) snapshot() Sandbox {
	s := sb.info
	s.Metadata, s.Images = maps.Clone(s.Metadata), maps.Clone(s.Images)
	s.LastActive = sb.activeAt()
	s.EndAt = sb.endAt()
	if !sb.ending {
		s.AccessToken, s.TrafficToken = sb.secrets.Access, sb.secrets.Traffic
	}
	if sb.ending && isFinal(s.Status) {
		s.Status = StatusStopping
	}
	return s
}

func (sb *sandbox) activeAt() time.Time {
	if n := sb.lastActive.Load(); n > 0 {
		return time.Unix(0, n).UTC()
	}
	return time.Time{}
}

// endAt is when the sandbox ends unless something extends it; zero means never. The caller holds mu.
func (sb *sandbox) endAt() time.Time {
	switch {
	case sb.info.TimeoutMode == TimeoutAbsolute:
		return sb.info.EndAt
	case sb.info.Timeout <= 0 || sb.activeAt().IsZero():
		return time.Time{}
	default:
		return sb.activeAt().Add(sb.info.Timeout)
	}
}

// touch moves the last activity forward, never back.
func (sb *sandbox) touch(now time.Time) {
	n := now.UnixNano()
	for {
		old := sb.lastActive.Load()
		if n <= old || sb.lastActive.CompareAndSwap(old, n) {
			return
		}
	}
}

func isFinal(s Status) bool {
	return s == StatusFailed || s == StatusCompleted || s == StatusCanceled || s == StatusReleased
}

// toRecord is the durable form of a finished sandbox.
func toRecord(s *Sandbox) record.Record {
	return record.Record{
		SandboxID: s.ID, Namespace: s.Owner.Namespace, Team: s.Owner.Team, User: s.Owner.User,
		Env: s.Env, Pool: s.Pool, Group: s.Group, Pod: s.Pod, Node: s.Node, Status: string(s.Status),
		ClaimedAt: s.ClaimedAt, StartedAt: s.StartedAt, TerminatedAt: s.TerminatedAt, LastActive: s.LastActive,
		TimeoutSeconds: int64(s.Timeout / time.Second), TimeoutMode: string(s.TimeoutMode),
		Metadata: s.Metadata, Images: s.Images, ContainerID: s.ContainerID, CPU: s.CPU, Memory: s.Memory,
		FailureReason: s.FailureReason, FailureMessage: s.FailureMessage, ExitCode: s.ExitCode,
	}
}

func fromRecord(r *record.Record) Sandbox {
	return Sandbox{
		ID: r.SandboxID, Owner: Owner{Namespace: r.Namespace, Team: r.Team, User: r.User},
		Env: r.Env, Pool: r.Pool, Group: r.Group, Pod: r.Pod, Node: r.Node, Status: Status(r.Status),
		ClaimedAt: r.ClaimedAt, StartedAt: r.StartedAt, TerminatedAt: r.TerminatedAt, RecycledAt: r.TerminatedAt,
		LastActive: r.LastActive, Timeout: time.Duration(r.TimeoutSeconds) * time.Second, TimeoutMode: TimeoutMode(r.TimeoutMode),
		Metadata: r.Metadata, Images: r.Images, ContainerID: r.ContainerID, CPU: r.CPU, Memory: r.Memory,
		FailureReason: r.FailureReason, FailureMessage: r.FailureMessage, ExitCode: r.ExitCode,
	}
}

// mainStatus is the status of the Pod's first container, the sandbox; nil before the kubelet reports one.
func mainStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == pod.Spec.Containers[0].Name {
			return s
		}
	}
	return nil
}
