package pool

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

const (
	// EnvInitToken is the environment variable through which envd learns the token of its initialisation.
	EnvInitToken = "ENVD_INIT_TOKEN"
	// InitSecretKey is the key of the init token in the Secret of a pool.
	InitSecretKey = "token"

	envdRuntime = "envd"
)

// InitSecretName names the Secret that holds the token with which the platform initialises envd in a pool's Pods.
func InitSecretName(pool string) string { return "agbx-init-" + pool }

// newPod renders the next Pod of a pool. The name is chosen here, so that a create whose answer was lost can be told
// from one that did not happen.
func newPod(p *v1alpha1.SandboxPool, revision string) *corev1.Pod {
	template := p.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        podName(p.Name),
			Namespace:   p.Namespace,
			Labels:      maps.Clone(template.Labels),
			Annotations: maps.Clone(template.Annotations),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("SandboxPool")),
			},
		},
		Spec: template.Spec,
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	for _, key := range []string{v1alpha1.LabelEnv, v1alpha1.LabelScalingGroup, v1alpha1.LabelTeam, v1alpha1.LabelUser} {
		if v := p.Labels[key]; v != "" {
			pod.Labels[key] = v
		}
	}
	pod.Labels[v1alpha1.LabelPool] = p.Name
	pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodIdle)
	pod.Labels[v1alpha1.LabelTemplateHash] = revision

	spec := &pod.Spec
	// A sandbox runs other people's code: it gets no identity of the cluster and no map of its services, unless the
	// template says otherwise.
	if spec.AutomountServiceAccountToken == nil {
		spec.AutomountServiceAccountToken = ptr.To(false)
	}
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = ptr.To(false)
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](5) // nothing in a used sandbox is worth waiting for
	}
	if len(spec.Containers) == 0 {
		return pod // the API server refuses it and says so
	}
	main := &spec.Containers[0]
	main.Image = MainImage(&p.Spec)
	main.Env = append(main.Env, corev1.EnvVar{Name: EnvInitToken, ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: InitSecretName(p.Name)},
			Key:                  InitSecretKey,
		},
	}})
	if main.ReadinessProbe == nil && !StartsIdle(&p.Spec) {
		// The idle image runs no envd; a Pod that starts on the sandbox image is claimable once envd answers.
		main.ReadinessProbe = envdProbe(&p.Spec)
	}
	return pod
}

func envdProbe(spec *v1alpha1.SandboxPoolSpec) *corev1.Probe {
	for i := range spec.Runtimes {
		if r := &spec.Runtimes[i]; r.Name == envdRuntime && r.ReadinessProbe != nil {
			return r.ReadinessProbe.DeepCopy()
		}
	}
	return nil
}

// podName is the pool's name, cut to leave room, and a random suffix.
func podName(pool string) string {
	const suffix = 8
	if most := 63 - suffix - 1; len(pool) > most {
		pool = pool[:most]
	}
	return pool + "-" + utilrand.String(suffix)
}
