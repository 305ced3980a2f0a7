package main

import (
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"navix.sh/agentbox/controller"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
)

const file = "../../deploy/install.yaml"

func TestManifestIsCurrent(t *testing.T) {
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("deploy/install.yaml is not what its parts render to (go generate ./internal/installmanifest):\n%s", diff)
	}
}

// objects reads the manifest as an API server that refuses unknown fields would.
func objects(t *testing.T) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewDocumentDecoder(f)
	defer documents.Close()
	var all []runtime.Object
	buf := make([]byte, 1<<20)
	for {
		n, err := documents.Read(buf)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var content map[string]any
		if err := yaml.Unmarshal(buf[:n], &content); err == nil && len(content) == 0 {
			continue // the comment at the top
		}
		o, _, err := decoder.Decode(buf[:n], nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, buf[:min(n, 200)])
		}
		all = append(all, o)
	}
}

func of[T runtime.Object](t *testing.T) []T {
	t.Helper()
	var out []T
	for _, o := range objects(t) {
		if v, ok := o.(T); ok {
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		t.Fatalf("the manifest has no %T", *new(T))
	}
	return out
}

func TestEveryTypeIsInstalled(t *testing.T) {
	var names []string
	for _, crd := range of[*apiextensionsv1.CustomResourceDefinition](t) {
		names = append(names, crd.Spec.Names.Plural)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(v1alpha1.Plurals)), slices.Sorted(slices.Values(names))); diff != "" {
		t.Error(diff)
	}
}

func TestRightsNameWhatTheyAreFor(t *testing.T) {
	var rules []rbacv1.PolicyRule
	for _, r := range of[*rbacv1.ClusterRole](t) {
		rules = append(rules, r.Rules...)
	}
	for _, r := range of[*rbacv1.Role](t) {
		rules = append(rules, r.Rules...)
	}
	for _, r := range rules {
		if all := slices.Concat(r.APIGroups, r.Resources, r.Verbs, r.NonResourceURLs); slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "*") }) {
			t.Errorf("a wildcard: %+v", r)
		}
	}
}

// TestTheControllerStarts: its settings parse, and what its image says about files holds in the Pod.
func TestTheControllerStarts(t *testing.T) {
	d := of[*appsv1.Deployment](t)[0]
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	env := map[string]string{}
	for _, v := range c.Env {
		env[v.Name] = v.Value
	}
	image, err := os.ReadFile("../../deploy/images/controller.Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	entrypoint := regexp.MustCompile(`(?m)^ENTRYPOINT \[(.*)\]$`).FindSubmatch(image)
	if entrypoint == nil {
		t.Fatal("the image has no entry point")
	}
	args := strings.Split(strings.ReplaceAll(string(entrypoint[1]), `"`, ""), ", ")[1:]
	s, err := controller.ParseSettings(args, func(name string) (string, bool) { v, ok := env[name]; return v, ok }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	mounts := map[string]corev1.VolumeMount{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m
	}
	if at := mounts["data"]; at.ReadOnly || s.DataDir != at.MountPath {
		t.Errorf("the data directory %s is not in a writable volume: %+v", s.DataDir, at)
	}
	if s.Namespace != d.Namespace {
		t.Errorf("the controller keeps its objects in %s, and runs in %s", s.Namespace, d.Namespace)
	}
	config := of[*corev1.ConfigMap](t)[0]
	name, ok := strings.CutPrefix(s.Catalogue, mounts["catalogue"].MountPath+"/")
	if !ok || config.Data[name] == "" {
		t.Errorf("there is no catalogue at %s", s.Catalogue)
	}
	if _, err := catalogue.Parse([]byte(config.Data[name])); err != nil {
		t.Errorf("the catalogue: %v", err)
	}
	port := c.Ports[0]
	if !strings.HasSuffix(s.Listen, ":8480") || port.ContainerPort != 8480 {
		t.Errorf("it listens on %s, and its port is %d", s.Listen, port.ContainerPort)
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Port.StrVal != port.Name {
			t.Errorf("a probe: %+v", p)
		}
	}
	if service := of[*corev1.Service](t)[0]; service.Spec.Ports[0].TargetPort.StrVal != port.Name {
		t.Errorf("the Service goes to %s", service.Spec.Ports[0].TargetPort.String())
	} else {
		for k, v := range service.Spec.Selector {
			if d.Spec.Template.Labels[k] != v {
				t.Errorf("the Service selects %s=%s", k, v)
			}
		}
	}
}

func TestTheControllerIsConfined(t *testing.T) {
	pod := of[*appsv1.Deployment](t)[0].Spec.Template.Spec
	c := pod.Containers[0].SecurityContext
	yes, no := true, false
	if diff := cmp.Diff(&corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, c); diff != "" {
		t.Error(diff)
	}
	p := pod.SecurityContext
	if p.RunAsNonRoot == nil || !*p.RunAsNonRoot || p.SeccompProfile == nil || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the Pod: %+v", p)
	}
}
