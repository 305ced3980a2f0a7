package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TemplateBlock is the part that a template and a pool share: the shape of the Pods.
type TemplateBlock struct {
	// Template is the Pod to create. Its first container is the sandbox. The schema keeps every field it does not
	// know, so that a template can use what a newer cluster offers.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template corev1.PodTemplateSpec `json:"template,omitzero"`

	// IdleImage is what a Pod runs while no sandbox holds it, under the pod creation policy IdleImage.
	// +optional
	IdleImage string `json:"idleImage,omitempty"`

	// Runtimes are the daemons inside the sandbox that must answer before a claim is handed out.
	// +optional
	// +listType=map
	// +listMapKey=name
	Runtimes []Runtime `json:"runtimes,omitempty"`
}

// Runtime is a daemon inside the sandbox, such as envd.
type Runtime struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Port is the TCP or UDP port that the runtime listens on; 0 means none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// +optional
	// +kubebuilder:default=TCP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	// +optional
	Description string `json:"description,omitempty"`
	// LogDir is the path of the runtime's log file inside the container.
	// +optional
	LogDir string `json:"logDir,omitempty"`
	// ReadinessProbe says when the runtime is ready; the platform runs HTTP probes itself.
	// +optional
	ReadinessProbe *corev1.Probe `json:"readinessProbe,omitempty"`
	// Config is free-form, for the runtime.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Config *runtime.RawExtension `json:"config,omitempty"`
}

// VisibilityRule lets a team, some users, or some users of a team see a template. Both fields must match; an empty
// field matches everyone.
type VisibilityRule struct {
	// +optional
	Team string `json:"team,omitempty"`
	// +optional
	// +listType=set
	Users []string `json:"users,omitempty"`
}

// Visibility says who may see and use a template. It is public when there are no rules; one matching rule is enough.
type Visibility struct {
	// +optional
	// +listType=atomic
	Rules []VisibilityRule `json:"rules,omitempty"`
}

// SandboxTemplateSpec is what sandboxes are made from.
type SandboxTemplateSpec struct {
	TemplateBlock `json:",inline"`

	// Version is a label for people; it does not select a revision.
	// +optional
	Version string `json:"version,omitempty"`
	// +optional
	Description string `json:"description,omitempty"`
	// +optional
	Visibility *Visibility `json:"visibility,omitempty"`
}

// SandboxTemplateStatus reports what the controller found out about a template.
type SandboxTemplateStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SandboxTemplate is the shape that environments bind: a Pod, the image it idles on, and the runtimes inside it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sbt
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SandboxTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SandboxTemplateSpec   `json:"spec,omitempty"`
	Status SandboxTemplateStatus `json:"status,omitempty"`
}

// SandboxTemplateList is a list of templates.
//
// +kubebuilder:object:root=true
type SandboxTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxTemplate `json:"items"`
}
