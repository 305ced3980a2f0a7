package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodCreationImagePolicy says which image a new Pod of a pool starts on.
//
// +kubebuilder:validation:Enum=PoolDefaultImage;IdleImage
type PodCreationImagePolicy string

// The pod creation image policies.
const (
	// PoolDefaultImage starts Pods on the template's own image: a claim of that image needs no restart.
	PoolDefaultImage PodCreationImagePolicy = "PoolDefaultImage"
	// IdleImage starts Pods on the idle image; the sandbox image is swapped in by the claim.
	IdleImage PodCreationImagePolicy = "IdleImage"
)

// Gateway switches the network policy of sandboxes on.
type Gateway struct {
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// SandboxPoolSpec is the wanted state of a pool.
type SandboxPoolSpec struct {
	TemplateBlock `json:",inline"`

	// Replicas is how many Pods the pool holds, in whatever phase.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// TemplateName is the template that the pool was rendered from.
	// +optional
	TemplateName string `json:"templateName,omitempty"`
	// DefaultStartupTimeout bounds a claim that names no bound; two minutes when absent.
	// +optional
	DefaultStartupTimeout *metav1.Duration `json:"defaultStartupTimeout,omitempty"`
	// DefaultIdleTimeout ends a sandbox that names no timeout; none when absent.
	// +optional
	DefaultIdleTimeout *metav1.Duration `json:"defaultIdleTimeout,omitempty"`
	// +optional
	// +kubebuilder:default=IdleImage
	PodCreationImagePolicy PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`
	// MaxUnavailable bounds how many idle Pods a rollout takes away at once: a number, or a percentage that is
	// rounded down to at least one. "20%" when absent.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// PoolPhase sums up a pool in one word.
type PoolPhase string

// The pool phases, in the order in which they win.
const (
	PoolTerminating PoolPhase = "Terminating"
	PoolPending     PoolPhase = "Pending"
	PoolScalingUp   PoolPhase = "ScalingUp"
	PoolScalingDown PoolPhase = "ScalingDown"
	PoolDegraded    PoolPhase = "Degraded"
	PoolReady       PoolPhase = "Ready"
)

// ScaleUpResult is the outcome of an attempt to grow a pool.
type ScaleUpResult string

// The outcomes of an attempt to grow a pool.
const (
	ScaleUpEnough       ScaleUpResult = "Enough"
	ScaleUpInsufficient ScaleUpResult = "Insufficient"
	ScaleUpFailed       ScaleUpResult = "Failed"
)

// PoolAutoscalingStatus is what the autoscaler remembers about a pool.
type PoolAutoscalingStatus struct {
	// +optional
	LastScaleUpTime *metav1.Time `json:"lastScaleUpTime,omitempty"`
	// +optional
	LastScaleDownTime *metav1.Time `json:"lastScaleDownTime,omitempty"`
	// IdleZeroSince is when the last idle Pod went; absent while there are idle Pods.
	// +optional
	IdleZeroSince *metav1.Time `json:"idleZeroSince,omitempty"`
	// +optional
	LastScaleUpAttemptTime *metav1.Time `json:"lastScaleUpAttemptTime,omitempty"`
	// +optional
	LastScaleUpAttemptResult ScaleUpResult `json:"lastScaleUpAttemptResult,omitempty"`
	// +optional
	ScaleUpErrorMessage string `json:"scaleUpErrorMessage,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// SandboxPoolStatus counts a pool's Pods.
type SandboxPoolStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Phase PoolPhase `json:"phase,omitempty"`
	// +optional
	IdleReplicas int32 `json:"idleReplicas"`
	// UnavailableIdleReplicas are idle Pods that are not Ready; they are part of IdleReplicas.
	// +optional
	UnavailableIdleReplicas int32 `json:"unavailableIdleReplicas"`
	// +optional
	RunningReplicas int32 `json:"runningReplicas"`
	// +optional
	StartingReplicas int32 `json:"startingReplicas"`
	// +optional
	StoppingReplicas int32 `json:"stoppingReplicas"`
	// +optional
	FailedReplicas int32 `json:"failedReplicas"`
	// UpdateRevision is the revision that new Pods get.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// CurrentRevision is the revision that every Pod has; empty while they differ.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// UpdatedReplicas are the Pods at UpdateRevision.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// PendingRequests are the claims that wait for a Pod.
	// +optional
	PendingRequests int32 `json:"pendingRequests"`
	// Selector selects the pool's Pods; the scale subresource serves it.
	// +optional
	Selector string `json:"selector,omitempty"`
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// PhaseSelectors select the pool's Pods by phase; the keys are all, idle, running, starting, stopping and failed.
	// +optional
	PhaseSelectors map[string]string `json:"phaseSelectors,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	Autoscaling *PoolAutoscalingStatus `json:"autoscaling,omitempty"`
}

// SandboxPool holds warm Pods of one shape. An environment writes the spec of its member pools.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.runningReplicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=sbp
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idleReplicas`
// +kubebuilder:printcolumn:name="Unavail",type=integer,JSONPath=`.status.unavailableIdleReplicas`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningReplicas`
// +kubebuilder:printcolumn:name="Starting",type=integer,JSONPath=`.status.startingReplicas`
// +kubebuilder:printcolumn:name="Stopping",type=integer,JSONPath=`.status.stoppingReplicas`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failedReplicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || size(self.metadata.name) <= 63",message="a pool's name has at most 63 characters: it is a label of its Pods; make it shorter"
type SandboxPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SandboxPoolSpec   `json:"spec,omitempty"`
	Status SandboxPoolStatus `json:"status,omitempty"`
}

// SandboxPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type SandboxPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxPool `json:"items"`
}
