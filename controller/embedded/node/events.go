package node

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// events tells people about Pods through Kubernetes Events; close sends what is under way and ends.
type events struct {
	record.EventRecorder
	broadcaster record.EventBroadcaster
}

func newEvents(client kubernetes.Interface, node string) *events {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &events{
		EventRecorder: b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "node-agent", Host: node}),
		broadcaster:   b,
	}
}

func (e *events) close() { e.broadcaster.Shutdown() }

// tell records what a person would want to know about a change of the Pod's status: why a container cannot start, and
// how one ended by itself.
func (w *worker) tell(before, after *corev1.PodStatus) {
	for i := range after.ContainerStatuses {
		now := &after.ContainerStatuses[i]
		var old corev1.ContainerStatus
		for _, c := range before.ContainerStatuses {
			if c.Name == now.Name {
				old = c
			}
		}
		if s := now.State.Waiting; s != nil && s.Message != "" && (old.State.Waiting == nil || old.State.Waiting.Reason != s.Reason) {
			reason := s.Reason
			if reason == reasonSandbox {
				reason = "FailedCreatePodSandBox" // as a kubelet has it
			}
			w.agent.events.Eventf(w.pod, corev1.EventTypeWarning, reason, "container %s: %s", now.Name, s.Message)
		}
		end := now.State.Terminated
		if end == nil && now.RestartCount > old.RestartCount {
			end = now.LastTerminationState.Terminated
		}
		if end != nil && end.ExitCode != 0 && (old.State.Terminated == nil || old.State.Terminated.ContainerID != end.ContainerID) {
			w.agent.events.Eventf(w.pod, corev1.EventTypeWarning, end.Reason, "container %s ended with exit code %d", now.Name, end.ExitCode)
		}
	}
}
