package env

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/apiserver/apiservertest"
)

// onRealAPI runs the reconciler on an API server, where pools are not reconciled, and returns a client of it.
func onRealAPI(t *testing.T, o Options) client.Client {
	t.Helper()
	config := apiservertest.StartForTest(t)
	scheme := runtime.NewScheme()
	_ = clientscheme.AddToScheme(scheme)
	_ = v1alpha1.AddToScheme(scheme)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, // the test may run more than once
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Setup(mgr, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEnvOnARealAPI follows one env from its first manifest to the end. Pools are not reconciled here, so their
// status stays what the test writes.
func TestEnvOnARealAPI(t *testing.T) {
	ctx := t.Context()
	c := onRealAPI(t, Options{ClusterID: "here"})
	in := inputs()
	e := &v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{Name: "env", Namespace: "default", Labels: map[string]string{v1alpha1.LabelTeam: "red"}},
		Spec: v1alpha1.SandboxEnvSpec{
			TemplateRef: v1alpha1.TemplateReference{Name: "tpl"},
			Clusters: []v1alpha1.ClusterSegment{
				{ClusterID: "here", Members: []v1alpha1.Member{{Name: "env-1c2gi", Config: in.Member.Config, Spec: &v1alpha1.SandboxPoolSpec{Replicas: 3}}}},
				{ClusterID: "there", Members: []v1alpha1.Member{{Name: "other", Config: in.Member.Config}}},
			},
		},
	}
	// A person's change, as `kubectl edit` makes it: read, change, write, again on a conflict.
	key := client.ObjectKeyFromObject(e)
	change := func(f func(*v1alpha1.SandboxEnv)) {
		t.Helper()
		for {
			var now v1alpha1.SandboxEnv
			if err := c.Get(ctx, key, &now); err != nil {
				t.Fatal(err)
			}
			f(&now)
			err := c.Update(ctx, &now)
			if err == nil {
				return
			}
			if !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
	}
	eventually := func(what string, met func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool) {
		t.Helper()
		deadline := time.After(20 * time.Second)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var e v1alpha1.SandboxEnv
			var p v1alpha1.SandboxPool
			_ = c.Get(ctx, key, &e)
			_ = c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "env-1c2gi"}, &p)
			if met(&e, &p) {
				return
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("timed out waiting for %s\nenv: %+v\nconditions: %+v\npool: %+v", what, e.Spec, e.Status.Conditions, p.Spec)
			}
		}
	}
	reason := func(e *v1alpha1.SandboxEnv, kind string) string {
		if c := meta.FindStatusCondition(e.Status.Conditions, kind); c != nil {
			return c.Reason
		}
		return ""
	}

	if err := c.Create(ctx, e); err != nil {
		t.Fatal(err)
	}
	eventually("the missing template to be reported", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return reason(e, v1alpha1.EnvConditionReady) == reasonTemplateNotFound && p.Name == ""
	})
	if err := c.Create(ctx, in.Template); err != nil {
		t.Fatal(err)
	}
	eventually("the pool", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return p.Spec.Replicas == 3 && p.Labels[v1alpha1.LabelEnv] == "env" && p.Labels[v1alpha1.LabelTeam] == "red" &&
			p.Labels[v1alpha1.LabelScalingGroup] == "1c2gi" && metav1.IsControlledBy(p, e) && p.Annotations[v1alpha1.AnnotationTemplateName] == "tpl"
	})
	eventually("scaling groups and status", func(e *v1alpha1.SandboxEnv, _ *v1alpha1.SandboxPool) bool {
		return e.Spec.Autoscaling != nil && len(e.Spec.Autoscaling.Groups) == 2 && e.Status.MemberCount == 1 && e.Status.DesiredReplicas == 3
	})
	eventually("a status that is not of pools which nobody has looked at", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		if e.Status.ObservedGeneration == e.Generation {
			t.Errorf("the status claims generation %d, and that of its pool %d of %d", e.Generation, p.Status.ObservedGeneration, p.Generation)
		}
		p.Status.ObservedGeneration = p.Generation
		return c.Status().Update(ctx, p) == nil
	})
	eventually("the status of this generation", func(e *v1alpha1.SandboxEnv, _ *v1alpha1.SandboxPool) bool {
		return e.Status.ObservedGeneration == e.Generation
	})
	eventually("the whole env", func(e *v1alpha1.SandboxEnv, _ *v1alpha1.SandboxPool) bool {
		if segments := e.Spec.Clusters; len(segments) != 2 || segments[1].Members[0].Spec != nil {
			t.Errorf("another cluster's segment was written: %+v", segments)
		}
		return true
	})

	change(func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].Members[0].Spec.Replicas = 5 })
	eventually("the pool to be scaled", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool { return p.Spec.Replicas == 5 })

	var tpl v1alpha1.SandboxTemplate
	if err := c.Get(ctx, client.ObjectKey{Name: "tpl"}, &tpl); err != nil {
		t.Fatal(err)
	}
	tpl.Spec.IdleImage = "idle:2"
	if err := c.Update(ctx, &tpl); err != nil {
		t.Fatal(err)
	}
	eventually("the template's change to reach the pool", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return p.Spec.IdleImage == "idle:2" && p.Spec.Replicas == 5
	})

	var now v1alpha1.SandboxEnv
	if err := c.Get(ctx, key, &now); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: PullSecretName("env"), Namespace: "default", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(&now, v1alpha1.GroupVersion.WithKind("SandboxEnv")),
	}}}
	if err := c.Create(ctx, secret); err != nil {
		t.Fatal(err)
	}
	eventually("the pull secret to be referenced", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return len(p.Spec.Template.Spec.ImagePullSecrets) == 1
	})
	if err := c.Delete(ctx, secret); err != nil {
		t.Fatal(err)
	}
	eventually("the reference to go with it", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return len(p.Spec.Template.Spec.ImagePullSecrets) == 0
	})

	foreign := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "taken", Namespace: "default"}}
	if err := c.Create(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	change(func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters[0].Members = append(e.Spec.Clusters[0].Members, v1alpha1.Member{Name: "taken", Config: in.Member.Config})
	})
	eventually("somebody else's pool to be left alone", func(e *v1alpha1.SandboxEnv, _ *v1alpha1.SandboxPool) bool {
		return reason(e, v1alpha1.EnvConditionReady) == reasonPoolConflict
	})
	if err := c.Get(ctx, client.ObjectKeyFromObject(foreign), foreign); err != nil || len(foreign.OwnerReferences) != 0 {
		t.Errorf("the foreign pool: %+v, %v", foreign.ObjectMeta, err)
	}

	change(func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].Members = nil })
	eventually("the pool to go with its member", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return p.Name == "" && reason(e, v1alpha1.EnvConditionReady) == reasonNoMembers && len(e.Spec.Autoscaling.Groups) <= 1
	})
	if err := c.Get(ctx, client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("the foreign pool went with the env's members: %v", err)
	}
}

// TestOneThingOnARealAPI runs tests that share an API server, each in a namespace of its own.
func TestOneThingOnARealAPI(t *testing.T) {
	c := onRealAPI(t, Options{ClusterID: "here", Size: func(name string, _ int32) (corev1.ResourceRequirements, bool) {
		return corev1.ResourceRequirements{Requests: size("cpu", "1", "memory", "2Gi")}, name == "small"
	}})
	for i, tt := range []struct {
		name string
		run  func(t *testing.T, f *envFixture)
	}{
		{"a deleted env says so", testDeletedEnv},
		{"unknown instance type", testUnknownInstanceType},
		{"scaled to zero", testScaledToZero},
		{"pool scaled by hand", testScaledPool},
		{"removed keys", testRemovedKeys},
		{"names", testNames},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &envFixture{t: t, client: c, namespace: fmt.Sprintf("ns-%d", i)}
			if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}); err != nil {
				t.Fatal(err)
			}
			tt.run(t, f)
		})
	}
}

// envFixture is a namespace, an env with one member in it, and the template that it names.
type envFixture struct {
	t         *testing.T
	client    client.Client
	namespace string
	env       *v1alpha1.SandboxEnv
}

// create makes the template, called like the namespace, and the env.
func (f *envFixture) create(change func(*v1alpha1.SandboxEnv)) {
	f.t.Helper()
	in := inputs()
	in.Template.Name = f.namespace
	f.env = &v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{Name: "env", Namespace: f.namespace},
		Spec: v1alpha1.SandboxEnvSpec{
			TemplateRef: v1alpha1.TemplateReference{Name: f.namespace},
			Clusters:    []v1alpha1.ClusterSegment{{ClusterID: "here", Members: []v1alpha1.Member{*in.Member}}},
		},
	}
	change(f.env)
	for _, o := range []client.Object{in.Template, f.env} {
		if err := f.client.Create(f.t.Context(), o); err != nil {
			f.t.Fatal(err)
		}
	}
}

// eventually waits until env and pool are as they should be; the pool is empty while there is none.
func (f *envFixture) eventually(what string, met func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool) {
	f.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var e v1alpha1.SandboxEnv
		var p v1alpha1.SandboxPool
		_ = f.client.Get(f.t.Context(), client.ObjectKeyFromObject(f.env), &e)
		_ = f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: "env-1c2gi"}, &p)
		if met(&e, &p) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			f.t.Fatalf("timed out waiting for %s\nenv: %+v\npool: %+v", what, e.Status, p.Spec)
		}
	}
}

func ready(e *v1alpha1.SandboxEnv) metav1.Condition {
	if c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.EnvConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func testDeletedEnv(t *testing.T, f *envFixture) {
	f.create(func(e *v1alpha1.SandboxEnv) { e.Finalizers = []string{"example.com/hold"} })
	f.eventually("the pool to serve", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		p.Status.IdleReplicas = 3
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.PoolConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonIdlePodsAvailable})
		return p.Name != "" && f.client.Status().Update(t.Context(), p) == nil
	})
	f.eventually("the env to be ready", func(e *v1alpha1.SandboxEnv, _ *v1alpha1.SandboxPool) bool {
		return ready(e).Status == metav1.ConditionTrue
	})
	if err := f.client.Delete(t.Context(), f.env); err != nil {
		t.Fatal(err)
	}
	f.eventually("the env to say that it goes", func(e *v1alpha1.SandboxEnv, _ *v1alpha1.SandboxPool) bool {
		c := ready(e)
		return c.Status == metav1.ConditionFalse && c.Reason == reasonTerminating && e.Status.IdleReplicas == 3
	})
}

func testUnknownInstanceType(t *testing.T, f *envFixture) {
	f.create(func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters[0].Members[0].Config = v1alpha1.MemberConfig{InstanceType: "nosuch"}
	})
	says := func(e *v1alpha1.SandboxEnv, text string) bool {
		c := ready(e)
		return c.Status == metav1.ConditionFalse && c.Reason == reasonInvalidMember && strings.Contains(c.Message, `"nosuch"`) && strings.Contains(c.Message, text)
	}
	set := func(name string) {
		f.eventually("the member to be changed", func(e *v1alpha1.SandboxEnv, _ *v1alpha1.SandboxPool) bool {
			e.Spec.Clusters[0].Members[0].Config.InstanceType = name
			return f.client.Update(t.Context(), e) == nil
		})
	}
	f.eventually("the type to be refused", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return says(e, "catalogue") && p.Name == ""
	})
	set("small")
	f.eventually("the pool", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool { return p.Spec.Replicas == 3 })
	set("nosuch")
	f.eventually("the pool to stay", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return says(e, "stays") && p.DeletionTimestamp == nil && p.Spec.Replicas == 3
	})
}

func testScaledToZero(t *testing.T, f *envFixture) {
	f.create(func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].Members[0].Spec.Replicas = 0 })
	f.eventually("the env to say that it serves nobody", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		c := ready(e)
		return p.Name != "" && c.Status == metav1.ConditionFalse && c.Reason == reasonScaledToZero && strings.Contains(c.Message, "abx scale")
	})
}

func testScaledPool(t *testing.T, f *envFixture) {
	f.create(func(*v1alpha1.SandboxEnv) {})
	events := func() []corev1.Event {
		var list corev1.EventList
		if err := f.client.List(t.Context(), &list, client.InNamespace(f.namespace)); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason != "ReplicasRestored" || e.InvolvedObject.Name != "env-1c2gi"
		})
	}
	f.eventually("the status", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return e.Status.DesiredReplicas == 3 && p.Spec.Replicas == 3
	})
	f.eventually("the env to be scaled", func(e *v1alpha1.SandboxEnv, _ *v1alpha1.SandboxPool) bool {
		e.Spec.Clusters[0].Members[0].Spec.Replicas = 4
		return f.client.Update(t.Context(), e) == nil
	})
	f.eventually("the status", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return e.Status.DesiredReplicas == 4 && p.Spec.Replicas == 4
	})
	if e := events(); len(e) != 0 {
		t.Errorf("the env's own change is complained about: %s", e[0].Message)
	}
	f.eventually("the pool to be scaled by hand", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		p.Spec.Replicas = 9
		return f.client.Update(t.Context(), p) == nil
	})
	f.eventually("an event", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		e := events()
		return p.Spec.Replicas == 4 && len(e) == 1 && strings.Contains(e[0].Message, "abx scale envs env pools env-1c2gi")
	})
}

// testNames: what the native API refuses, a manifest cannot have either.
func testNames(t *testing.T, f *envFixture) {
	env := func(name string) client.Object {
		return &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace}, Spec: v1alpha1.SandboxEnvSpec{TemplateRef: v1alpha1.TemplateReference{Name: "tpl"}}}
	}
	pool := func(name string) client.Object {
		return &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace}}
	}
	for _, tt := range []struct {
		object  client.Object
		allowed bool
	}{
		{env("a"), true},
		{env("a-1"), true},
		{env(strings.Repeat("a", MaxNameLength)), true},
		{env(strings.Repeat("a", MaxNameLength+1)), false},
		{env("a.b"), false},
		{env("1a"), false},
		{pool(strings.Repeat("a", 63)), true},
		{pool(strings.Repeat("a", 64)), false},
	} {
		err := f.client.Create(t.Context(), tt.object)
		if (err == nil) != tt.allowed || err != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "name")) {
			t.Errorf("%T %s: %v", tt.object, tt.object.GetName(), err)
		}
	}
}

// testRemovedKeys: what a template or a member no longer says goes from the pool; what somebody else said stays.
func testRemovedKeys(t *testing.T, f *envFixture) {
	f.create(func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters[0].Members[0].Config.Annotations = map[string]string{"mine": "x"}
	})
	f.eventually("the pool", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		return p.Annotations["mine"] == "x" && p.Spec.Template.Labels["a"] == "template"
	})
	f.eventually("keys of somebody else", func(e *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "foreign", "y")
		if f.client.Update(t.Context(), p) != nil {
			return false
		}
		m := &e.Spec.Clusters[0].Members[0]
		m.Config.Annotations = nil
		m.Spec.Template.Labels["plugin"] = "z"
		return f.client.Update(t.Context(), e) == nil
	})
	f.eventually("the template to be changed", func(*v1alpha1.SandboxEnv, *v1alpha1.SandboxPool) bool {
		var tpl v1alpha1.SandboxTemplate
		if err := f.client.Get(t.Context(), client.ObjectKey{Name: f.namespace}, &tpl); err != nil {
			t.Fatal(err)
		}
		tpl.Spec.Template.Labels = map[string]string{"b": "template"}
		return f.client.Update(t.Context(), &tpl) == nil
	})
	f.eventually("the keys to go", func(_ *v1alpha1.SandboxEnv, p *v1alpha1.SandboxPool) bool {
		labels := p.Spec.Template.Labels
		_, old := labels["a"]
		_, mine := p.Annotations["mine"]
		return !old && !mine && labels["b"] == "template" && labels["plugin"] == "z" && p.Annotations["foreign"] == "y"
	})
}
