package node

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// maxPods is what the node says it can hold.
const maxPods = 1000

// conditionLimits is False on a node that cannot limit everything that a Pod may ask to be limited.
const conditionLimits = v1alpha1.Prefix + "LimitsEnforced"

// register makes or updates the Node object.
func (a *Agent) register(ctx context.Context) error {
	nodes := a.client.CoreV1().Nodes()
	annotations := map[string]string{
		v1alpha1.AnnotationPodReset: v1alpha1.PodResetV1,
		v1alpha1.Prefix + "runtime": a.Describe(),
	}
	node, err := nodes.Get(ctx, a.node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		node, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: a.node, Annotations: annotations,
			Labels: map[string]string{
				corev1.LabelHostname: a.node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: goruntime.GOARCH,
			},
		}}, metav1.CreateOptions{})
	case err == nil:
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		for k, v := range annotations {
			node.Annotations[k] = v
		}
		node, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	a.fillStatus(node)
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func (a *Agent) fillStatus(node *corev1.Node) {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(machineMemory(), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	now := metav1.Now()
	limits := corev1.NodeCondition{
		Type: conditionLimits, Status: corev1.ConditionTrue, Reason: "ControllersPresent",
		Message:           "memory, CPU and processes of sandboxes are limited",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if missing := a.runtime.Missing(); len(missing) > 0 {
		limits.Status, limits.Reason = corev1.ConditionFalse, "ControllersMissing"
		limits.Message = "this machine does not let the agent limit: " + strings.Join(missing, ", ")
	}
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Conditions = []corev1.NodeCondition{
		{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady", Message: a.Describe(),
			LastHeartbeatTime: now, LastTransitionTime: now,
		},
		limits,
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: a.node}}
	node.Status.NodeInfo.OperatingSystem = "linux"
	node.Status.NodeInfo.Architecture = goruntime.GOARCH
	node.Status.NodeInfo.ContainerRuntimeVersion = "agentbox://" + a.standard.Name()
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		node.Status.NodeInfo.KernelVersion = strings.TrimSpace(string(release))
	}
}

// machineMemory is the machine's memory in bytes, 0 when it is not known.
func machineMemory() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(data), "\n") {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
