package env

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/pool"
)

func inputs() Inputs {
	return Inputs{
		Env: &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Name: "env"}, Spec: v1alpha1.SandboxEnvSpec{Overrides: &v1alpha1.EnvOverrides{}}},
		Member: &v1alpha1.Member{Name: "env-1c2gi", Config: v1alpha1.MemberConfig{
			InlineResources: &corev1.ResourceRequirements{Requests: size("cpu", "1", "memory", "2Gi")},
		}, Spec: &v1alpha1.SandboxPoolSpec{Replicas: 3}},
		Template: &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "tpl"}, Spec: v1alpha1.SandboxTemplateSpec{
			TemplateBlock: v1alpha1.TemplateBlock{
				IdleImage: "idle:1",
				Runtimes:  []v1alpha1.Runtime{{Name: "envd", Port: 49983}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "template"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "sandbox:1"}}},
				},
			},
		}},
	}
}

func TestRender(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Inputs)
		fails  string
		check  func(t *testing.T, s v1alpha1.SandboxPoolSpec)
	}{
		{name: "plain", check: func(t *testing.T, s v1alpha1.SandboxPoolSpec) {
			c := s.Template.Spec.Containers[0]
			if s.Replicas != 3 || s.TemplateName != "tpl" || c.Image != "sandbox:1" || c.Resources.Requests.Cpu().Value() != 1 ||
				s.PodCreationImagePolicy != v1alpha1.IdleImage || s.Runtimes[0].Protocol != corev1.ProtocolTCP || len(s.Template.Spec.ImagePullSecrets) != 0 {
				t.Errorf("%+v", s)
			}
		}},
		{name: "overrides", change: func(in *Inputs) {
			in.Env.Spec.Overrides = &v1alpha1.EnvOverrides{
				Image: "mine:2", PodCreationImagePolicy: v1alpha1.PoolDefaultImage,
				DefaultIdleTimeout: &metav1.Duration{Duration: time.Hour},
				UpdateStrategy:     &v1alpha1.UpdateStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(2))},
			}
			in.PullSecret = true
		}, check: func(t *testing.T, s v1alpha1.SandboxPoolSpec) {
			if s.Template.Spec.Containers[0].Image != "mine:2" || s.PodCreationImagePolicy != v1alpha1.PoolDefaultImage ||
				s.DefaultIdleTimeout.Duration != time.Hour || s.MaxUnavailable.IntVal != 2 || s.Template.Spec.ImagePullSecrets[0].Name != "ips-env" {
				t.Errorf("%+v", s)
			}
		}},
		{name: "member strategy wins", change: func(in *Inputs) {
			in.Env.Spec.Overrides.UpdateStrategy = &v1alpha1.UpdateStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(2))}
			in.Member.Config.UpdateStrategy = &v1alpha1.UpdateStrategy{MaxUnavailable: ptr.To(intstr.FromString("50%"))}
		}, check: func(t *testing.T, s v1alpha1.SandboxPoolSpec) {
			if s.MaxUnavailable.StrVal != "50%" {
				t.Errorf("%+v", s.MaxUnavailable)
			}
		}},
		{name: "frozen without autoUpdate", change: func(in *Inputs) {
			in.Member.Config.UpdateStrategy = &v1alpha1.UpdateStrategy{AutoUpdate: ptr.To(false)}
			old, _ := Render(inputs())
			old.Template.Spec.Containers[0].Image, old.Replicas = "old:1", 7
			in.Member.Spec = &old
			in.Env.Spec.Overrides.DefaultIdleTimeout = &metav1.Duration{Duration: time.Minute}
		}, check: func(t *testing.T, s v1alpha1.SandboxPoolSpec) {
			if s.Template.Spec.Containers[0].Image != "old:1" || s.Replicas != 7 || s.DefaultIdleTimeout.Duration != time.Minute {
				t.Errorf("%+v", s)
			}
		}},
		{name: "plugin keys survive", change: func(in *Inputs) {
			old, _ := Render(inputs())
			old.Template.Labels = map[string]string{"plugin": "x", "a": "old"}
			in.Member.Spec = &old
		}, check: func(t *testing.T, s v1alpha1.SandboxPoolSpec) {
			if s.Template.Labels["plugin"] != "x" || s.Template.Labels["a"] != "template" {
				t.Errorf("%v", s.Template.Labels)
			}
		}},
		{name: "volume", change: func(in *Inputs) {
			in.Env.Spec.Overrides.Volumes = []v1alpha1.VolumeMount{
				{ClaimName: "data", MountPath: "/data"}, {ClaimName: "out", MountPath: "/out", ReadOnly: ptr.To(false), SubPath: "x"},
			}
		}, check: func(t *testing.T, s v1alpha1.SandboxPoolSpec) {
			v, m := s.Template.Spec.Volumes, s.Template.Spec.Containers[0].VolumeMounts
			if len(v) != 2 || !v[0].PersistentVolumeClaim.ReadOnly || v[1].PersistentVolumeClaim.ReadOnly || !m[0].ReadOnly || m[1].SubPath != "x" {
				t.Errorf("%+v %+v", v, m)
			}
		}},
		{name: "volume that could be remounted", fails: "privileged", change: func(in *Inputs) {
			in.Env.Spec.Overrides.Volumes = []v1alpha1.VolumeMount{{ClaimName: "data", MountPath: "/data"}}
			in.Template.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}},
		{name: "unless an administrator says so", change: func(in *Inputs) {
			in.Env.Spec.Overrides.Volumes = []v1alpha1.VolumeMount{{ClaimName: "data", MountPath: "/data"}}
			in.Template.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
			in.Template.Annotations = map[string]string{v1alpha1.AnnotationAllowUnenforceableReadOnlyVolumes: "true"}
		}},
		{name: "no container", fails: "no container", change: func(in *Inputs) { in.Template.Spec.Template.Spec.Containers = nil }},
		{name: "no image", fails: "no image", change: func(in *Inputs) { in.Template.Spec.Template.Spec.Containers[0].Image = "" }},
		{name: "instance type", change: func(in *Inputs) {
			in.Member.Config.InlineResources = nil
			in.Size = &corev1.ResourceRequirements{Limits: size("cpu", "4", "memory", "8Gi")}
		}, check: func(t *testing.T, s v1alpha1.SandboxPoolSpec) {
			if s.Template.Spec.Containers[0].Resources.Limits.Cpu().Value() != 4 {
				t.Errorf("%+v", s.Template.Spec.Containers[0].Resources)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := inputs()
			if tt.change != nil {
				tt.change(&in)
			}
			template := in.Template.DeepCopy()
			s, err := Render(in)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("error %v, want one about %q", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.check != nil {
				tt.check(t, s)
			}
			// Rendering what was rendered changes nothing, or a reconciler would never rest.
			in.Member.Spec = &s
			again, err := Render(in)
			if err != nil || pool.Revision(&again) != pool.Revision(&s) {
				t.Errorf("a second rendering differs: %v", err)
			}
			if len(template.Spec.Template.Spec.Volumes) != len(in.Template.Spec.Template.Spec.Volumes) {
				t.Error("rendering changed the template")
			}
		})
	}
}

func TestSyncGroups(t *testing.T) {
	spec := v1alpha1.SandboxEnvSpec{
		Clusters: []v1alpha1.ClusterSegment{
			{ClusterID: "here", Members: []v1alpha1.Member{{Name: "a", Config: v1alpha1.MemberConfig{ScalingGroup: "1c2gi"}}}},
			{ClusterID: "there", Members: []v1alpha1.Member{{Name: "b", Config: v1alpha1.MemberConfig{ScalingGroup: "2c4gi"}}}},
		},
		Autoscaling: &v1alpha1.EnvAutoscaling{Groups: []v1alpha1.ScalingGroup{{Name: "1c2gi", Enabled: true}, {Name: "gone", Enabled: true}}},
	}
	if !syncGroups(&spec) {
		t.Error("nothing changed")
	}
	g := spec.Autoscaling.Groups
	if len(g) != 2 || g[0].Name != "1c2gi" || !g[0].Enabled || g[1].Name != "2c4gi" || g[1].Enabled {
		t.Errorf("groups: %+v", g)
	}
	if syncGroups(&spec) {
		t.Error("a second pass changes again")
	}
}
