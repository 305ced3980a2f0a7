package native

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// The wire types of member pools, as the document has them.

type poolSummary struct {
	Name            string      `json:"name"`
	Namespace       string      `json:"namespace"`
	OwningEnv       string      `json:"owningEnv"`
	Spec            poolSpec    `json:"spec"`
	Status          poolStatus  `json:"status"`
	CPU             string      `json:"cpu,omitempty"`
	Memory          string      `json:"memory,omitempty"`
	Team            string      `json:"team,omitempty"`
	User            string      `json:"user,omitempty"`
	ScalingGroup    string      `json:"scalingGroup,omitempty"`
	TemplateVersion string      `json:"templateVersion,omitempty"`
	CreatedAt       metav1.Time `json:"createdAt,omitzero"`
}

type poolDetail struct {
	poolSummary
	Overrides *poolOverrides `json:"overrides,omitempty"`
	SpecYAML  string         `json:"specYaml"`
	// Generation is the env's: what is asked of a pool is written there.
	Generation int64 `json:"generation"`
}

type poolOverrides struct {
	Image string `json:"image,omitempty"`
}

type poolSpec struct {
	Replicas               int32                           `json:"replicas"`
	TemplateName           string                          `json:"templateName,omitempty"`
	PodCreationImagePolicy v1alpha1.PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`
	DefaultStartupTimeout  string                          `json:"defaultStartupTimeout,omitempty"`
	DefaultIdleTimeout     string                          `json:"defaultIdleTimeout,omitempty"`
}

type poolStatus struct {
	Phase                   v1alpha1.PoolPhase              `json:"phase"`
	IdleReplicas            int32                           `json:"idleReplicas"`
	UnavailableIdleReplicas int32                           `json:"unavailableIdleReplicas"`
	RunningReplicas         int32                           `json:"runningReplicas"`
	StartingReplicas        int32                           `json:"startingReplicas"`
	StoppingReplicas        int32                           `json:"stoppingReplicas"`
	FailedReplicas          int32                           `json:"failedReplicas"`
	PendingRequests         int32                           `json:"pendingRequests"`
	UpdateRevision          string                          `json:"updateRevision,omitempty"`
	CurrentRevision         string                          `json:"currentRevision,omitempty"`
	UpdatedReplicas         int32                           `json:"updatedReplicas"`
	Autoscaling             *v1alpha1.PoolAutoscalingStatus `json:"autoscaling,omitempty"`
	Conditions              []metav1.Condition              `json:"conditions,omitempty"`
	ObservedGeneration      int64                           `json:"observedGeneration,omitempty"`
}

type poolEnvelope struct {
	Template poolDetail `json:"template"`
	Editable poolBody   `json:"editable"`
}

// poolBody is what a create and an update take, and what `editable` holds.
type poolBody struct {
	InstanceType    string                       `json:"instanceType,omitempty"`
	Multiplier      *int32                       `json:"multiplier,omitempty"`
	InlineResources *corev1.ResourceRequirements `json:"inlineResources,omitempty"`
	Replicas        *int32                       `json:"replicas,omitempty"`
	MinReplicas     *int32                       `json:"minReplicas,omitempty"`
	MaxReplicas     *int32                       `json:"maxReplicas,omitempty"`
	Labels          map[string]string            `json:"labels,omitempty"`
	Annotations     map[string]string            `json:"annotations,omitempty"`
	UpdateStrategy  *v1alpha1.UpdateStrategy     `json:"updateStrategy,omitempty"`
}
