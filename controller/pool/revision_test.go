package pool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func spec() *v1alpha1.SandboxPoolSpec {
	return &v1alpha1.SandboxPoolSpec{
		TemplateBlock: v1alpha1.TemplateBlock{
			IdleImage: "idle:1",
			Template:  corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "sandbox:1"}}}},
			Runtimes:  []v1alpha1.Runtime{{Name: "envd", Port: 49983, ReadinessProbe: &corev1.Probe{PeriodSeconds: 1}}},
		},
		PodCreationImagePolicy: v1alpha1.IdleImage,
		Replicas:               2,
	}
}

func TestRevision(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*v1alpha1.SandboxPoolSpec)
		changes bool
	}{
		{"replicas", func(s *v1alpha1.SandboxPoolSpec) { s.Replicas = 9 }, false},
		{"timeouts", func(s *v1alpha1.SandboxPoolSpec) {
			s.DefaultIdleTimeout = &metav1.Duration{Duration: time.Hour}
			s.DefaultStartupTimeout = &metav1.Duration{Duration: time.Hour}
		}, false},
		{"maxUnavailable", func(s *v1alpha1.SandboxPoolSpec) { s.MaxUnavailable = ptr.To(intstr.FromInt32(3)) }, false},
		{"template name", func(s *v1alpha1.SandboxPoolSpec) { s.TemplateName = "x" }, false},
		{"own label", func(s *v1alpha1.SandboxPoolSpec) {
			s.Template.Labels = map[string]string{v1alpha1.LabelTemplateHash: "x"}
		}, false},
		{"default policy spelled out", func(s *v1alpha1.SandboxPoolSpec) { s.PodCreationImagePolicy = "" }, false},
		{"sandbox image under IdleImage", func(s *v1alpha1.SandboxPoolSpec) { s.Template.Spec.Containers[0].Image = "sandbox:2" }, false},
		{"gateway switched off", func(s *v1alpha1.SandboxPoolSpec) { s.Gateway = &v1alpha1.Gateway{} }, false},
		{"gateway switched on", func(s *v1alpha1.SandboxPoolSpec) { s.Gateway = &v1alpha1.Gateway{Enabled: true} }, true},
		{"idle image", func(s *v1alpha1.SandboxPoolSpec) { s.IdleImage = "idle:2" }, true},
		{"policy", func(s *v1alpha1.SandboxPoolSpec) { s.PodCreationImagePolicy = v1alpha1.PoolDefaultImage }, true},
		{"Pod label", func(s *v1alpha1.SandboxPoolSpec) { s.Template.Labels = map[string]string{"a": "b"} }, true},
		{"sidecar", func(s *v1alpha1.SandboxPoolSpec) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "b", Image: "b"})
		}, true},
		{"runtime", func(s *v1alpha1.SandboxPoolSpec) { s.Runtimes = nil }, true},
	}
	base := Revision(spec())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := spec()
			tt.change(s)
			before := s.DeepCopy()
			if got := Revision(s) != base; got != tt.changes {
				t.Errorf("changes the revision: %v, want %v", got, tt.changes)
			}
			if Revision(s) != Revision(before) {
				t.Error("computing the revision changed the spec")
			}
		})
	}
	s := spec()
	s.PodCreationImagePolicy = v1alpha1.PoolDefaultImage
	one := Revision(s)
	s.Template.Spec.Containers[0].Image = "sandbox:2"
	if Revision(s) == one {
		t.Error("the sandbox image does not count although idle Pods run it")
	}
}

func TestNewPod(t *testing.T) {
	p := &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Name: "env-1c2gi", Namespace: "ns", UID: "u", Labels: map[string]string{
			v1alpha1.LabelEnv: "env", v1alpha1.LabelTeam: "red", v1alpha1.LabelScalingGroup: "1c2gi", "other": "x",
		}},
		Spec: *spec(),
	}
	got := newPod(p, "abc")
	for key, want := range map[string]string{
		v1alpha1.LabelPool: "env-1c2gi", v1alpha1.LabelEnv: "env", v1alpha1.LabelTeam: "red", v1alpha1.LabelScalingGroup: "1c2gi",
		v1alpha1.LabelPhase: "idle", v1alpha1.LabelTemplateHash: "abc", "other": "",
	} {
		if got.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, got.Labels[key], want)
		}
	}
	c := got.Spec.Containers[0]
	if c.Image != "idle:1" || c.ReadinessProbe != nil {
		t.Errorf("an idle Pod runs %s and is probed: %v", c.Image, c.ReadinessProbe != nil)
	}
	if len(c.Env) != 1 || c.Env[0].Value != "" || c.Env[0].ValueFrom.SecretKeyRef.Name != InitSecretName(p.Name) {
		t.Errorf("the init token reaches envd as %+v", c.Env)
	}
	if *got.Spec.AutomountServiceAccountToken || *got.Spec.EnableServiceLinks || !metav1.IsControlledBy(got, p) || len(got.Finalizers) != 0 {
		t.Errorf("Pod: %+v", got)
	}
	p.Spec.PodCreationImagePolicy = v1alpha1.PoolDefaultImage
	if c := newPod(p, "abc").Spec.Containers[0]; c.Image != "sandbox:1" || c.ReadinessProbe == nil {
		t.Errorf("under PoolDefaultImage the Pod runs %s and is probed: %v", c.Image, c.ReadinessProbe != nil)
	}
	if len(p.Spec.Template.Spec.Containers[0].Env) != 0 {
		t.Error("rendering a Pod changed the pool")
	}
	long := podName("a-pool-name-that-is-much-longer-than-a-pool-name-should-ever-be-in-practice")
	if len(long) > 63 {
		t.Errorf("Pod name %q has %d characters", long, len(long))
	}
}
