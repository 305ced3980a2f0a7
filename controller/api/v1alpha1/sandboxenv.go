package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// EnvMode says how an environment serves sandboxes.
//
// +kubebuilder:validation:Enum=WarmPool;OnDemandJob
type EnvMode string

// The environment modes. Only WarmPool is implemented.
const (
	ModeWarmPool    EnvMode = "WarmPool"
	ModeOnDemandJob EnvMode = "OnDemandJob"
)

// TemplateReference names a SandboxTemplate.
type TemplateReference struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Version is kept for old manifests and selects nothing.
	// +optional
	Version string `json:"version,omitempty"`
}

// EnvDefaults apply to members that do not say otherwise.
type EnvDefaults struct {
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=1
	Multiplier *int32 `json:"multiplier,omitempty"`
}

// UpdateStrategy says whether and how fast a template change reaches idle Pods.
type UpdateStrategy struct {
	// AutoUpdate rolls idle Pods when the template changes; true when absent everywhere.
	// +optional
	AutoUpdate *bool `json:"autoUpdate,omitempty"`
	// MaxUnavailable is a number or a percentage; "20%" when absent everywhere.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// MemberConfig is what a person decides about a member pool.
type MemberConfig struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Multiplier *int32 `json:"multiplier,omitempty"`
	// InlineResources size the sandbox container where no instance type does.
	// +optional
	InlineResources *corev1.ResourceRequirements `json:"inlineResources,omitempty"`
	// +optional
	// +kubebuilder:default=default
	ScalingGroup string `json:"scalingGroup,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// Priority orders members; a lower value is preferred.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// ScaleUpPriority overrides Priority for growing.
	// +optional
	ScaleUpPriority *int32 `json:"scaleUpPriority,omitempty"`
	// ScaleDownPriority overrides Priority for shrinking, where a higher value shrinks first.
	// +optional
	ScaleDownPriority *int32 `json:"scaleDownPriority,omitempty"`
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`
}

// MemberMetadata is the metadata that the platform gives a member pool.
type MemberMetadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Member is one pool of an environment on one cluster.
type Member struct {
	// Name is the name of the SandboxPool.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// +optional
	Config MemberConfig `json:"config,omitempty"`
	// Metadata is written by the platform.
	// +optional
	Metadata *MemberMetadata `json:"metadata,omitempty"`
	// Spec is the pool as it was rendered last; the platform fills it in. A person writes replicas at most.
	// +optional
	Spec *SandboxPoolSpec `json:"spec,omitempty"`
}

// ClusterSegment holds an environment's members on one cluster. Each cluster's controller writes only its own segment.
type ClusterSegment struct {
	// +kubebuilder:validation:MinLength=1
	ClusterID string `json:"clusterID"`
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []Member `json:"members,omitempty"`
}

// VolumeMount mounts an existing PersistentVolumeClaim into every sandbox of an environment.
type VolumeMount struct {
	// ClaimName names a bound PersistentVolumeClaim in the environment's namespace.
	// +kubebuilder:validation:MinLength=1
	ClaimName string `json:"claimName"`
	// MountPath is absolute.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^/`
	MountPath string `json:"mountPath"`
	// SubPath is relative to the volume and has no `..` element.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && self.split('/').all(e, e != '..')",message="subPath must be relative and must not contain '..'"
	SubPath string `json:"subPath,omitempty"`
	// ReadOnly is true unless it is false in so many words.
	// +optional
	// +kubebuilder:default=true
	ReadOnly *bool `json:"readOnly,omitempty"`
}

// EnvOverrides change what the template says, for one environment.
type EnvOverrides struct {
	// Image replaces the sandbox container's image.
	// +optional
	Image string `json:"image,omitempty"`
	// +optional
	PodCreationImagePolicy PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`
	// +optional
	DefaultStartupTimeout *metav1.Duration `json:"defaultStartupTimeout,omitempty"`
	// +optional
	DefaultIdleTimeout *metav1.Duration `json:"defaultIdleTimeout,omitempty"`
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Volumes []VolumeMount `json:"volumes,omitempty"`
}

// SandboxEnvSpec binds a template and says how many warm Pods of which shapes to hold where.
type SandboxEnvSpec struct {
	TemplateRef TemplateReference `json:"templateRef"`
	// +optional
	// +kubebuilder:default=WarmPool
	Mode EnvMode `json:"mode,omitempty"`
	// +optional
	Defaults *EnvDefaults `json:"defaults,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	Clusters []ClusterSegment `json:"clusters,omitempty"`
	// +optional
	Autoscaling *EnvAutoscaling `json:"autoscaling,omitempty"`
	// +optional
	Overrides *EnvOverrides `json:"overrides,omitempty"`
}

// SandboxEnv is an environment: `Sandbox.create("name")` is served from its member pools.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sbe
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.templateRef.name`
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.memberCount`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningReplicas`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idleReplicas`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || (size(self.metadata.name) <= 24 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$'))",message="an environment's name is a DNS label of at most 24 characters that starts with a letter, because pool names are built from it; choose another"
type SandboxEnv struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SandboxEnvSpec   `json:"spec,omitempty"`
	Status SandboxEnvStatus `json:"status,omitempty"`
}

// SandboxEnvList is a list of environments.
//
// +kubebuilder:object:root=true
type SandboxEnvList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxEnv `json:"items"`
}
