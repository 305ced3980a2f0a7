package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MemberState sums up an observed member pool.
type MemberState string

// The states of a member pool.
const (
	MemberActive MemberState = "Active"
	// MemberSaturated could not grow when it last tried.
	MemberSaturated MemberState = "Saturated"
	// MemberMissing has no pool.
	MemberMissing MemberState = "Missing"
	// MemberInconsistent has a pool that was made from another template.
	MemberInconsistent MemberState = "Inconsistent"
)

// ObservedMember is a member pool as its cluster's controller last saw it.
type ObservedMember struct {
	Name string `json:"name"`
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// +optional
	Multiplier *int32 `json:"multiplier,omitempty"`
	// EffectiveResources are what one Pod of the pool asks for.
	// +optional
	EffectiveResources *corev1.ResourceRequirements `json:"effectiveResources,omitempty"`
	// +optional
	State MemberState `json:"state,omitempty"`
	// +optional
	IdleCount int32 `json:"idleCount"`
	// +optional
	RunningCount int32 `json:"runningCount"`
	// +optional
	DesiredReplicas int32 `json:"desiredReplicas"`
	// +optional
	CurrentReplicas int32 `json:"currentReplicas"`
	// +optional
	PendingRequests int32 `json:"pendingRequests"`
	// +optional
	SaturatedUntil *metav1.Time `json:"saturatedUntil,omitempty"`
	// +optional
	ScalingGroup string `json:"scalingGroup,omitempty"`
	// +optional
	AutoscalingEnabled bool `json:"autoscalingEnabled,omitempty"`
	// ScaleUpHeadroom is how many Pods the member may still gain; absent when autoscaling is off or unbounded.
	// +optional
	ScaleUpHeadroom *int32 `json:"scaleUpHeadroom,omitempty"`
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// +optional
	TemplateVersion string `json:"templateVersion,omitempty"`
}

// ClusterStatus is one cluster's share of an environment.
type ClusterStatus struct {
	ClusterID string `json:"clusterID"`
	// +optional
	IsLocal bool `json:"isLocal,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=name
	ObservedMembers []ObservedMember `json:"observedMembers,omitempty"`
	// +optional
	LastSnapshotTime *metav1.Time `json:"lastSnapshotTime,omitempty"`
}

// ScalingGroupStatus adds up the members of a scaling group.
type ScalingGroupStatus struct {
	Name string `json:"name"`
	// +optional
	TotalIdle int32 `json:"totalIdle"`
	// +optional
	TotalRunning int32 `json:"totalRunning"`
	// +optional
	TotalDesired int32 `json:"totalDesired"`
}

// SandboxEnvStatus is the observed state of an environment.
type SandboxEnvStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	Clusters []ClusterStatus `json:"clusters,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=name
	ScalingGroups []ScalingGroupStatus `json:"scalingGroups,omitempty"`
	// +optional
	MemberCount int32 `json:"memberCount"`
	// +optional
	DesiredReplicas int32 `json:"desiredReplicas"`
	// +optional
	RunningReplicas int32 `json:"runningReplicas"`
	// +optional
	IdleReplicas int32 `json:"idleReplicas"`
}
