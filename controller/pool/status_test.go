package pool

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func TestObserve(t *testing.T) {
	const idle, running = v1alpha1.PodIdle, v1alpha1.PodRunning
	tests := []struct {
		name                string
		desired             int32
		deleting            bool
		pods                []Pod
		phase               v1alpha1.PoolPhase
		available, degraded string // condition reasons
	}{
		{"empty and unwanted", 0, false, nil, v1alpha1.PoolPending, v1alpha1.ReasonNoIdlePodsAvailable, v1alpha1.ReasonAllPodsHealthy},
		{"growing, with idle Pods", 2, false, []Pod{pod("a", idle)}, v1alpha1.PoolScalingUp, v1alpha1.ReasonScalingUp, v1alpha1.ReasonAllPodsHealthy},
		{"shrinking", 0, false, []Pod{pod("a", running)}, v1alpha1.PoolScalingDown, v1alpha1.ReasonNoIdlePodsAvailable, v1alpha1.ReasonAllPodsHealthy},
		{"ready", 2, false, []Pod{pod("a", idle), pod("b", running)}, v1alpha1.PoolReady, v1alpha1.ReasonIdlePodsAvailable, v1alpha1.ReasonAllPodsHealthy},
		{"all taken", 1, false, []Pod{pod("b", running)}, v1alpha1.PoolReady, v1alpha1.ReasonNoIdlePodsAvailable, v1alpha1.ReasonAllPodsHealthy},
		{"unready", 1, false, []Pod{pod("a", idle, "unready")}, v1alpha1.PoolDegraded, v1alpha1.ReasonNoIdlePodsAvailable, v1alpha1.ReasonUnhealthyIdlePods},
		{"failed", 2, false, []Pod{pod("a", idle), pod("b", idle, "dead")}, v1alpha1.PoolDegraded, v1alpha1.ReasonIdlePodsAvailable, v1alpha1.ReasonFailedPodsPresent},
		{"both", 2, false, []Pod{pod("a", idle, "unready"), pod("b", idle, "dead")}, v1alpha1.PoolDegraded, v1alpha1.ReasonNoIdlePodsAvailable, v1alpha1.ReasonUnhealthyAndFailedPods},
		{"terminating wins", 2, true, nil, v1alpha1.PoolTerminating, v1alpha1.ReasonScalingUp, v1alpha1.ReasonAllPodsHealthy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: tt.desired}}
			if tt.deleting {
				p.DeletionTimestamp = ptr.To(metav1.Now())
			}
			s := observe(p, "r", tt.pods, map[string]int{"r": 1}, 3, Admission{Reason: v1alpha1.ReasonAdmissionGranted}, Failing{})
			if s.Phase != tt.phase || s.PendingRequests != 3 || s.CurrentRevision != "r" {
				t.Errorf("status %+v, want phase %s", s, tt.phase)
			}
			if c := meta.FindStatusCondition(s.Conditions, v1alpha1.PoolConditionAvailable); c.Reason != tt.available {
				t.Errorf("Available: %s, want %s", c.Reason, tt.available)
			}
			if c := meta.FindStatusCondition(s.Conditions, v1alpha1.PoolConditionDegraded); c.Reason != tt.degraded {
				t.Errorf("Degraded: %s, want %s", c.Reason, tt.degraded)
			}
			again := p.DeepCopy()
			again.Status = s
			if next := observe(again, "r", tt.pods, map[string]int{"r": 1}, 3, Admission{Reason: v1alpha1.ReasonAdmissionGranted}, Failing{}); len(next.Conditions) != len(s.Conditions) || next.Conditions[0] != s.Conditions[0] {
				t.Error("the same Pods make another status")
			}
		})
	}
}
