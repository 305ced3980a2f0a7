package native

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
)

// The wire types of environments, as the document has them.

type envSummary struct {
	Name                         string               `json:"name"`
	Namespace                    string               `json:"namespace"`
	Team                         string               `json:"team,omitempty"`
	User                         string               `json:"user,omitempty"`
	CreatedAt                    metav1.Time          `json:"createdAt"`
	TemplateName                 string               `json:"templateName"`
	Mode                         v1alpha1.EnvMode     `json:"mode"`
	MemberCount                  int32                `json:"memberCount"`
	DesiredReplicas              int32                `json:"desiredReplicas"`
	RunningReplicas              int32                `json:"runningReplicas"`
	IdleReplicas                 int32                `json:"idleReplicas"`
	ScalingGroupCount            int                  `json:"scalingGroupCount"`
	AutoscalingEnabledGroupCount int                  `json:"autoscalingEnabledGroupCount"`
	Ready                        bool                 `json:"ready"`
	PoolSizing                   catalogue.PoolSizing `json:"poolSizing"`
}

type envDetail struct {
	Name       string               `json:"name"`
	Namespace  string               `json:"namespace"`
	Labels     map[string]string    `json:"labels,omitempty"`
	Team       string               `json:"team,omitempty"`
	User       string               `json:"user,omitempty"`
	CreatedAt  metav1.Time          `json:"createdAt"`
	EnvDocs    string               `json:"envDocs"`
	PoolSizing catalogue.PoolSizing `json:"poolSizing"`
	Spec       envSpec              `json:"spec"`
	Status     envStatus            `json:"status"`
	Generation int64                `json:"generation"`
}

type envSpec struct {
	TemplateRef v1alpha1.TemplateReference `json:"templateRef"`
	Mode        v1alpha1.EnvMode           `json:"mode"`
	Defaults    *v1alpha1.EnvDefaults      `json:"defaults,omitempty"`
	Clusters    []envCluster               `json:"clusters,omitempty"`
	Autoscaling *autoscalingSpec           `json:"autoscaling,omitempty"`
	Overrides   *envOverrides              `json:"overrides,omitempty"`
}

type envCluster struct {
	ClusterID string      `json:"clusterID"`
	Members   []envMember `json:"members,omitempty"`
}

type envMember struct {
	Name   string                `json:"name"`
	Config v1alpha1.MemberConfig `json:"config"`
}

type envStatus struct {
	Conditions      []metav1.Condition            `json:"conditions,omitempty"`
	Clusters        []v1alpha1.ClusterStatus      `json:"clusters,omitempty"`
	ScalingGroups   []v1alpha1.ScalingGroupStatus `json:"scalingGroups,omitempty"`
	MemberCount     int32                         `json:"memberCount"`
	DesiredReplicas int32                         `json:"desiredReplicas"`
	RunningReplicas int32                         `json:"runningReplicas"`
	IdleReplicas    int32                         `json:"idleReplicas"`

	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

type envEnvelope struct {
	Env      envDetail `json:"env"`
	Editable envBody   `json:"editable"`
}

// envBody is what a create and an update take, and what `editable` holds.
type envBody struct {
	Name        string                     `json:"name,omitempty"`
	TemplateRef v1alpha1.TemplateReference `json:"templateRef"`
	Mode        v1alpha1.EnvMode           `json:"mode,omitempty"`
	Overrides   *envOverrides              `json:"overrides,omitempty"`
	Labels      map[string]string          `json:"labels,omitempty"`
	Annotations map[string]string          `json:"annotations,omitempty"`
}

type envOverrides struct {
	Image                     string                          `json:"image,omitempty"`
	PodCreationImagePolicy    v1alpha1.PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`
	DefaultStartupTimeout     string                          `json:"defaultStartupTimeout,omitempty"`
	DefaultIdleTimeout        string                          `json:"defaultIdleTimeout,omitempty"`
	ImagePullSecret           *imagePullSecret                `json:"imagePullSecret,omitempty"`
	ImagePullSecretConfigured bool                            `json:"imagePullSecretConfigured,omitempty"`
	Gateway                   *v1alpha1.Gateway               `json:"gateway,omitempty"`
	Envd                      *envdSettings                   `json:"envd,omitempty"`
	UpdateStrategy            *v1alpha1.UpdateStrategy        `json:"updateStrategy,omitempty"`
	Volumes                   []v1alpha1.VolumeMount          `json:"volumes,omitempty"`
}

type envdSettings struct {
	Verbose bool `json:"verbose"`
}

// imagePullSecret is write-only: no answer ever holds it.
type imagePullSecret struct {
	Registries []registryLogin `json:"registries"`
}

type registryLogin struct {
	Registry string `json:"registry"`
	Username string `json:"username"`
	Password string `json:"password"`
}

type namedResult struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

// overridesOf turns the stored overrides into the wire's; nil when there is nothing to say.
func overridesOf(o *v1alpha1.EnvOverrides, pullSecret bool) *envOverrides {
	if o == nil {
		o = &v1alpha1.EnvOverrides{}
	}
	out := &envOverrides{
		Image:                     o.Image,
		PodCreationImagePolicy:    o.PodCreationImagePolicy,
		DefaultStartupTimeout:     durationText(o.DefaultStartupTimeout),
		DefaultIdleTimeout:        durationText(o.DefaultIdleTimeout),
		ImagePullSecretConfigured: pullSecret,
		Gateway:                   o.Gateway,
		UpdateStrategy:            o.UpdateStrategy,
		Volumes:                   o.Volumes,
	}
	if isEmptyJSON(out) {
		return nil
	}
	return out
}

func isEmptyJSON(v any) bool {
	m, isMap := asJSON(v).(map[string]any)
	return isMap && len(m) == 0
}

// toSpec turns the wire's overrides into the stored ones. The document has checked the durations' form.
func (o *envOverrides) toSpec() (*v1alpha1.EnvOverrides, error) {
	if o == nil {
		return nil, nil
	}
	out := &v1alpha1.EnvOverrides{
		Image:                  o.Image,
		PodCreationImagePolicy: o.PodCreationImagePolicy,
		Gateway:                o.Gateway,
		UpdateStrategy:         o.UpdateStrategy,
		Volumes:                o.Volumes,
	}
	for i := range out.Volumes {
		if out.Volumes[i].ReadOnly == nil {
			readOnly := true
			out.Volumes[i].ReadOnly = &readOnly
		}
	}
	var err error
	if out.DefaultStartupTimeout, err = parseDuration("overrides.defaultStartupTimeout", o.DefaultStartupTimeout); err != nil {
		return nil, err
	}
	if out.DefaultIdleTimeout, err = parseDuration("overrides.defaultIdleTimeout", o.DefaultIdleTimeout); err != nil {
		return nil, err
	}
	if isEmptyJSON(out) {
		return nil, nil
	}
	return out, nil
}

func parseDuration(field, text string) (*metav1.Duration, error) {
	if text == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return nil, badBody("give a time greater than 0, such as 90s, 30m or 2h", "%s: %q is not a time that can be waited", field, text)
	}
	return &metav1.Duration{Duration: d}, nil
}

// durationText writes a duration as people do: 30m, not 30m0s.
func durationText(d *metav1.Duration) string {
	if d == nil {
		return ""
	}
	s := d.Duration.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
