package claim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/apiserver"
	"navix.sh/agentbox/controller/env"
	"navix.sh/agentbox/controller/pool"
)

const (
	testCluster = "test"
	testImage   = "registry.example/sandbox:1"
	otherImage  = "registry.example/other:1"
)

// bed is a real API server with the real reconcilers and a node whose kubelet and envd are the test's own, so that
// they can be made to fail on demand. One serves the package.
type bed struct {
	config *rest.Config
	client client.WithWatch
	cache  cache.Cache
	node   *fakeNode
}

var testBed *bed

func TestMain(m *testing.M) {
	code, err := runWithBed(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithBed(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "claim-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ctrllog.SetLogger(ctrllog.Log.WithSink(nil))
	server, err := apiserver.Start(ctx, apiserver.Options{DataDir: dir})
	if err != nil {
		return 1, err
	}
	defer server.Stop()

	scheme := runtime.NewScheme()
	_ = clientscheme.AddToScheme(scheme)
	_ = v1alpha1.AddToScheme(scheme)
	ofPools, _ := labels.NewRequirement(v1alpha1.LabelPool, selection.Exists, nil)
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*ofPools)},
		}},
	})
	if err != nil {
		return 1, err
	}
	direct, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		return 1, err
	}
	if err := env.Setup(mgr, env.Options{ClusterID: testCluster}); err != nil {
		return 1, err
	}
	if err := pool.Setup(mgr, pool.Options{}); err != nil {
		return 1, err
	}
	testBed = &bed{config: server.Config, client: direct, cache: mgr.GetCache(), node: newFakeNode(direct, mgr.GetCache())}
	if err := testBed.node.register(ctx); err != nil {
		return 1, err
	}
	if err := mgr.Add(testBed.node); err != nil {
		return 1, err
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	code = m.Run()
	cancel()
	return code, <-done
}

// template makes a template on testImage, idle image included, and removes it with the test.
func (b *bed) template(t testing.TB, name string) *v1alpha1.SandboxTemplate {
	t.Helper()
	tpl := &v1alpha1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.SandboxTemplateSpec{TemplateBlock: v1alpha1.TemplateBlock{
			IdleImage: "registry.example/idle:1",
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "sandbox", Image: testImage}},
			}},
		}},
	}
	if err := b.client.Create(t.Context(), tpl); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Delete(context.Background(), tpl) })
	return tpl
}

// env makes an env with one member of n Pods on a template of its own, in a namespace of its own, and waits until
// every Pod can be claimed. It returns the namespace; the env's name is "env".
func (b *bed) env(t testing.TB, n int32, change ...func(*v1alpha1.SandboxEnv)) string {
	t.Helper()
	ns := fmt.Sprintf("ns-%d", nextNamespace.Add(1))
	if err := b.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	b.template(t, ns)
	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")}
	e := &v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{Name: "env", Namespace: ns},
		Spec: v1alpha1.SandboxEnvSpec{
			TemplateRef: v1alpha1.TemplateReference{Name: ns},
			Overrides:   &v1alpha1.EnvOverrides{PodCreationImagePolicy: v1alpha1.PoolDefaultImage},
			Clusters: []v1alpha1.ClusterSegment{{ClusterID: testCluster, Members: []v1alpha1.Member{{
				Name:   "env-1c2gi",
				Config: v1alpha1.MemberConfig{InlineResources: &corev1.ResourceRequirements{Requests: size, Limits: size}},
				Spec:   &v1alpha1.SandboxPoolSpec{Replicas: n},
			}}}},
		},
	}
	for _, f := range change {
		f(e)
	}
	if err := b.client.Create(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.dismantle(t, ns) })
	b.awaitIdle(t, ns, int(n))
	return ns
}

var nextNamespace atomic.Int64

// dismantle deletes the env and its pools (there is no garbage collector on the bed) and waits until no Pod is left.
func (b *bed) dismantle(t testing.TB, ns string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = b.client.DeleteAllOf(ctx, &v1alpha1.SandboxEnv{}, client.InNamespace(ns))
	_ = b.client.DeleteAllOf(ctx, &v1alpha1.SandboxPool{}, client.InNamespace(ns))
	var pods corev1.PodList
	await(t, ctx, "the Pods of "+ns+" to go", func() bool {
		// Claims whose Manager has stopped still hold their Pods.
		if err := b.client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
			return false
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; len(p.Finalizers) > 0 {
				p.Finalizers = nil
				_ = b.client.Update(ctx, p)
			}
		}
		return len(pods.Items) == 0
	})
}

// pods lists the Pods of a namespace from the server.
func (b *bed) pods(t testing.TB, ns string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := b.client.List(context.Background(), &pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

// awaitIdle waits until exactly n Pods are idle and ready and no Pod is anything else.
func (b *bed) awaitIdle(t testing.TB, ns string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	await(t, ctx, fmt.Sprintf("%d idle Pods in %s", n, ns), func() bool {
		idle := 0
		for _, p := range b.pods(t, ns) {
			if phaseOf(&p) != v1alpha1.PodIdle || !podReady(&p) || p.DeletionTimestamp != nil || p.Labels[v1alpha1.LabelSandboxID] != "" {
				return false
			}
			idle++
		}
		return idle == n
	})
}

// await looks again and again; it is for conditions on the server, which have no event in the test.
func await(t testing.TB, ctx context.Context, what string, met func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// manager starts a Manager and stops it with the test, or by the returned function.
func (b *bed) manager(t testing.TB, change ...func(*Options)) (*Manager, func()) {
	t.Helper()
	o := Options{
		Client: b.client, Cache: b.cache, Dial: b.node.dial, ClusterID: testCluster, SystemNamespace: v1alpha1.SystemNamespace,
		SettleAfter: 20 * time.Millisecond,
		Logger:      slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, f := range change {
		f(&o)
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-m.Ready():
	case err := <-done:
		stopped = true
		t.Fatalf("the manager did not start: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the manager is not ready")
	}
	return m, stop
}

// intercept wraps the bed's client.
func (b *bed) intercept(f interceptor.Funcs) client.WithWatch {
	return interceptor.NewClient(b.client, f)
}
