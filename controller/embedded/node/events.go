package node

import (
	"slices"

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
	w.tellContainers(before.InitContainerStatuses, after.InitContainerStatuses)
	w.tellContainers(before.ContainerStatuses, after.ContainerStatuses)
}

func (w *worker) tellContainers(before, after []corev1.ContainerStatus) {
	for i := range after {
		now := &after[i]
		var old corev1.ContainerStatus
		for _, c := range before {
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

// about names a container of the Pod as the object of an event, which is how a kubelet says whose probe has failed.
func (w *worker) about(container string) *corev1.ObjectReference {
	field := "containers"
	if slices.ContainsFunc(w.pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == container }) {
		field = "initContainers"
	}
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.pod.UID, ResourceVersion: w.pod.ResourceVersion,
		FieldPath: "spec." + field + "{" + container + "}",
	}
}
