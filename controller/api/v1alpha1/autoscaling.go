package v1alpha1

// ScaleMode is the step size of the autoscaler in both directions.
//
// +kubebuilder:validation:Enum=Conservative;Default;Aggressive
type ScaleMode string

// The scale modes.
const (
	ScaleConservative ScaleMode = "Conservative"
	ScaleDefault      ScaleMode = "Default"
	ScaleAggressive   ScaleMode = "Aggressive"
)

// ScaleUpPolicy says when and how far a scaling group grows.
type ScaleUpPolicy struct {
	// +optional
	// +kubebuilder:default=Default
	Mode ScaleMode `json:"mode,omitempty"`
	// CooldownSeconds is the least time between two scale-ups.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty"`
	// IdleThresholdSeconds is how long there must be no idle Pod before the group grows ahead of demand; 0 never does.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	IdleThresholdSeconds *int32 `json:"idleThresholdSeconds,omitempty"`
	// IdleZeroQuietWindowSeconds keeps the group from growing ahead of demand when nothing was claimed for this long;
	// 0 switches the check off.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	IdleZeroQuietWindowSeconds *int32 `json:"idleZeroQuietWindowSeconds,omitempty"`
	// SaturationCooldownSeconds is how long a member counts as saturated after it could not grow.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	SaturationCooldownSeconds *int32 `json:"saturationCooldownSeconds,omitempty"`
}

// ScaleDownPolicy says when a scaling group shrinks.
type ScaleDownPolicy struct {
	// IdleTimeoutSeconds is how long a Pod idles before it may be removed.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	IdleTimeoutSeconds *int32 `json:"idleTimeoutSeconds,omitempty"`
	// StabilizationSeconds is the least time between two scale-downs.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	StabilizationSeconds *int32 `json:"stabilizationSeconds,omitempty"`
	// ProtectionWindowSeconds is how long a Pod that is marked for removal can still be claimed.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	ProtectionWindowSeconds *int32 `json:"protectionWindowSeconds,omitempty"`
}

// ScalingGroup is the autoscaling policy of the members of one shape.
//
// +kubebuilder:validation:XValidation:rule="!has(self.scaleUpPolicy) || !has(self.scaleUpPolicy.mode) || self.scaleUpPolicy.mode != 'Aggressive' || has(self.maxReplicas)",message="scaleUpPolicy.mode Aggressive needs maxReplicas: set maxReplicas, or use mode Default"
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be greater than maxReplicas"
type ScalingGroup struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// MinReplicas is the floor of the group's replicas taken together.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MinReplicas int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the ceiling of the group's replicas taken together; none when absent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// +optional
	// +kubebuilder:default={}
	ScaleUpPolicy ScaleUpPolicy `json:"scaleUpPolicy,omitempty"`
	// +optional
	// +kubebuilder:default={}
	ScaleDownPolicy ScaleDownPolicy `json:"scaleDownPolicy,omitempty"`
}

// EnvAutoscaling holds an environment's scaling groups.
type EnvAutoscaling struct {
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Groups []ScalingGroup `json:"groups,omitempty"`
}
