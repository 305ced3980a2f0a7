package apiserver_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// The sample manifests apply unchanged, and once more without a change.
func TestSamplesApply(t *testing.T) {
	ctx, c := context.Background(), newClient(t)
	ns := newNamespace(t, c)
	files, err := filepath.Glob("../../../deploy/samples/*_sandbox*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		apply := func() *unstructured.Unstructured {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(data, u); err != nil {
				t.Fatal(err)
			}
			if u.GetKind() != "SandboxTemplate" {
				u.SetNamespace(ns)
			}
			if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test")); err != nil {
				t.Fatalf("apply %s: %v", file, err)
			}
			return u
		}
		first, second := apply(), apply()
		if first.GetResourceVersion() == "" || first.GetResourceVersion() != second.GetResourceVersion() {
			t.Errorf("%s changes each time it is applied", file)
		}
	}
	var tmpl v1alpha1.SandboxTemplate
	if err := c.Get(ctx, client.ObjectKey{Name: "e2b-envd-docker"}, &tmpl); err != nil {
		t.Fatal(err)
	}
	if len(tmpl.Spec.Template.Spec.InitContainers) != 2 || tmpl.Spec.Runtimes[0].Port != 49983 {
		t.Errorf("the template lost fields: %+v", tmpl.Spec)
	}
	var env v1alpha1.SandboxEnv
	if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "e2b"}, &env); err != nil {
		t.Fatal(err)
	}
	if m := env.Spec.Clusters[0].Members[0]; m.Spec.Replicas != 2 || m.Config.InlineResources.Limits.Memory().String() != "2Gi" {
		t.Errorf("the member lost fields: %+v", m)
	}
	if p := env.Spec.Autoscaling.Groups[0].ScaleUpPolicy; p.Mode != v1alpha1.ScaleDefault || *p.CooldownSeconds != 30 {
		t.Errorf("the policy has no defaults: %+v", p)
	}
}

func TestSchemaRefusals(t *testing.T) {
	c := newClient(t)
	ns := newNamespace(t, c)
	env := func(change func(*v1alpha1.SandboxEnvSpec)) *v1alpha1.SandboxEnv {
		e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{GenerateName: "e-", Namespace: ns}}
		e.Spec.TemplateRef.Name = "t"
		change(&e.Spec)
		return e
	}
	group := func(g v1alpha1.ScalingGroup) func(*v1alpha1.SandboxEnvSpec) {
		g.Name = "1c2gi"
		return func(s *v1alpha1.SandboxEnvSpec) {
			s.Autoscaling = &v1alpha1.EnvAutoscaling{Groups: []v1alpha1.ScalingGroup{g}}
		}
	}
	volume := func(v v1alpha1.VolumeMount) func(*v1alpha1.SandboxEnvSpec) {
		v.ClaimName = "data"
		return func(s *v1alpha1.SandboxEnvSpec) {
			s.Overrides = &v1alpha1.EnvOverrides{Volumes: []v1alpha1.VolumeMount{v}}
		}
	}
	one, two := int32(1), int32(2)
	for name, tt := range map[string]struct {
		change func(*v1alpha1.SandboxEnvSpec)
		want   string // empty: it is accepted
	}{
		"plain":                    {func(*v1alpha1.SandboxEnvSpec) {}, ""},
		"no template":              {func(s *v1alpha1.SandboxEnvSpec) { s.TemplateRef.Name = "" }, "spec.templateRef.name"},
		"unknown mode":             {func(s *v1alpha1.SandboxEnvSpec) { s.Mode = "Fast" }, "spec.mode"},
		"aggressive, no ceiling":   {group(v1alpha1.ScalingGroup{ScaleUpPolicy: v1alpha1.ScaleUpPolicy{Mode: v1alpha1.ScaleAggressive}}), "maxReplicas"},
		"aggressive, with ceiling": {group(v1alpha1.ScalingGroup{MaxReplicas: &two, ScaleUpPolicy: v1alpha1.ScaleUpPolicy{Mode: v1alpha1.ScaleAggressive}}), ""},
		"floor above ceiling":      {group(v1alpha1.ScalingGroup{MinReplicas: two, MaxReplicas: &one}), "minReplicas"},
		"relative mount path":      {volume(v1alpha1.VolumeMount{MountPath: "data"}), "mountPath"},
		"sub path escapes":         {volume(v1alpha1.VolumeMount{MountPath: "/data", SubPath: "a/../../b"}), "subPath"},
		"sub path with dots":       {volume(v1alpha1.VolumeMount{MountPath: "/data", SubPath: "a..b/c"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(context.Background(), env(tt.change))
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an invalid %s", err, tt.want)
			}
		})
	}
}

func TestScaleSubresource(t *testing.T) {
	ctx, c := context.Background(), newClient(t)
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: newNamespace(t, c)}, Spec: v1alpha1.SandboxPoolSpec{Replicas: 1}}
	if err := c.Create(ctx, pool); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))
	if err := c.SubResource("scale").Patch(ctx, pool, patch, client.WithSubResourceBody(&autoscalingv1.Scale{})); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil || pool.Spec.Replicas != 3 {
		t.Errorf("replicas: %d, %v", pool.Spec.Replicas, err)
	}
	if pool.Spec.PodCreationImagePolicy != v1alpha1.IdleImage {
		t.Errorf("the default policy is %q", pool.Spec.PodCreationImagePolicy)
	}
}

// Two appliers of one Pod own a field each: lists of built-in types merge by key, as on a cluster.
func TestServerSideApplyMergesContainers(t *testing.T) {
	ctx, c := context.Background(), newClient(t)
	ns := newNamespace(t, c)
	apply := func(owner, doc string) error {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), u); err != nil {
			t.Fatal(err)
		}
		u.SetNamespace(ns)
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner))
	}
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
	if err := apply("one", pod+"spec: {containers: [{name: a, image: a}, {name: b, image: b}]}"); err != nil {
		t.Fatal(err)
	}
	if err := apply("two", pod+"spec: {containers: [{name: b, image: c}]}"); !apierrors.IsConflict(err) {
		t.Errorf("another owner's field: %v", err)
	}
	var p corev1.Pod
	if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "p"}, &p); err != nil || len(p.Spec.Containers) != 2 {
		t.Errorf("%d containers, %v", len(p.Spec.Containers), err)
	}
}

// Events written in either form are read in both.
func TestEventsInBothGroups(t *testing.T) {
	ctx, c := context.Background(), newClient(t)
	ns := newNamespace(t, c)
	now := metav1.NowMicro()
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: ns}, EventTime: now, Reason: "Claimed", Action: "Claim", Type: "Normal", Note: "hello",
		Regarding: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: ns}, ReportingController: "test", ReportingInstance: "test-1",
	}
	if err := c.Create(ctx, e); err != nil {
		t.Fatal(err)
	}
	var l corev1.EventList
	if err := c.List(ctx, &l, client.InNamespace(ns), client.MatchingFields{"involvedObject.name": "p", "reason": "Claimed"}); err != nil {
		t.Fatal(err)
	}
	if len(l.Items) != 1 || l.Items[0].Message != "hello" || !l.Items[0].LastTimestamp.Time.Equal(now.Truncate(1e9)) {
		t.Errorf("in core/v1: %+v", l.Items)
	}
	old := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "f", Namespace: ns}, Reason: "Killed", Message: "bye", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: ns}}
	if err := c.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	var f eventsv1.Event
	if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "f"}, &f); err != nil || f.Note != "bye" || f.Regarding.Name != "p" {
		t.Errorf("in events.k8s.io: %+v, %v", f, err)
	}
}

func TestSecrets(t *testing.T) {
	ctx, c := context.Background(), newClient(t)
	yes := true
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: newNamespace(t, c)}, StringData: map[string]string{"a": "b"}, Immutable: &yes}
	if err := c.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	if string(s.Data["a"]) != "b" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque {
		t.Errorf("%+v", s)
	}
	s.Data["a"] = []byte("c")
	if err := c.Update(ctx, s); !apierrors.IsInvalid(err) {
		t.Errorf("a changed immutable Secret: %v", err)
	}
}

// What kubectl asks before it does anything.
func TestDiscovery(t *testing.T) {
	server, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := version.ParseSemantic(server.GitVersion); err != nil {
		t.Errorf("kubectl cannot read the version: %v", err)
	}
	lists, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	short := map[string]string{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			short[r.Name] = strings.Join(r.ShortNames, ",")
		}
	}
	for name, want := range map[string]string{"pods": "po", "configmaps": "cm", "sandboxtemplates": "sbt", "sandboxenvs": "sbe", "sandboxpools": "sbp", "leases": "", "customresourcedefinitions": "crd,crds"} {
		if got, ok := short[name]; !ok || got != want {
			t.Errorf("%s: short names %q, served %t", name, got, ok)
		}
	}
	paths, err := discovery.NewDiscoveryClientForConfigOrDie(config).OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"api/v1", "apis/agents.navix.sh/v1alpha1"} {
		doc, err := paths[p].Schema("application/json")
		if err != nil || !strings.Contains(string(doc), `"x-kubernetes-list-map-keys"`) {
			t.Errorf("the OpenAPI document of %s: %d bytes, %v", p, len(doc), err)
		}
	}
}
