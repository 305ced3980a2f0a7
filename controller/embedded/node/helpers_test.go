package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"navix.sh/agentbox/controller/embedded/apiserver"
	"navix.sh/agentbox/controller/embedded/apiserver/apiservertest"
	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
	"navix.sh/agentbox/controller/embedded/runtime/oci"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(agentVariable); args != "" {
		os.Exit(agentMain(args))
	}
	code := m.Run() // the libraries of the API server leave goroutines behind; assertNoGoroutines looks for the agent's
	runtimetest.Clean()
	if binDir != "" && os.Getenv(binVariable) == "" {
		_ = os.RemoveAll(binDir)
	}
	os.Exit(code)
}

var (
	binDir  string
	binOnce sync.Once
)

// binVariable names a folder with the binaries, for runs as a user who cannot build them.
const binVariable = "AGENTBOX_TEST_BIN"

// bin returns a folder with sandbox-init and, as envd, the tests' own server.
func bin(t testing.TB) string {
	t.Helper()
	binOnce.Do(func() {
		if binDir = os.Getenv(binVariable); binDir != "" {
			return
		}
		dir, err := os.MkdirTemp("", "agentbox-bin-")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(runtimetest.Launcher(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sandbox-init"), data, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "envd"), "./testdata/server")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the test server: %v\n%s", err, out)
		}
		binDir = dir
	})
	if binDir == "" {
		t.Fatal("the test binaries were not built")
	}
	return binDir
}

// bed is an agent on an API server.
type bed struct {
	t      testing.TB
	config *rest.Config
	client kubernetes.Interface
	agent  *Agent
	dir    string
	// runtime is the standard one of the node.
	runtime string
}

// eachRuntime runs a test with every runtime that there is, and names as skipped those that the machine does not have.
func eachRuntime(t *testing.T, test func(t *testing.T, runtime string)) {
	for _, name := range append([]string{namespaces.Name}, oci.Names...) {
		t.Run(name, func(t *testing.T) {
			if name != namespaces.Name {
				if os.Geteuid() != 0 {
					t.Skipf("%s: OCI runtimes are for root", name)
				}
				if _, err := oci.Find(t.Context(), name); err != nil {
					t.Skipf("%s: %v", name, err)
				}
			}
			test(t, name)
		})
	}
}

func newBed(t testing.TB) *bed {
	t.Helper()
	return newBedOn(t, namespaces.Name)
}

func newBedOn(t testing.TB, runtime string) *bed {
	t.Helper()
	return newBedIn(t, t.TempDir(), runtime)
}

// newBedIn has the node's data in dir.
func newBedIn(t testing.TB, dir, runtime string) *bed {
	t.Helper()
	b := &bed{t: t, config: apiservertest.StartForTest(t), dir: dir, runtime: runtime}
	var err error
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(func() {
		if b.agent != nil {
			if err := b.agent.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			assertNoGoroutines(t)
		}
	})
	return b
}

func (b *bed) start() {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{b.t}, nil))
	a, err := Start(b.t.Context(), Options{Config: b.config, NodeName: apiserver.NodeName, DataDir: b.dir, BinDir: bin(b.t), Runtime: b.runtime, Logger: log})
	if err != nil {
		b.t.Fatal(err)
	}
	b.agent = a
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// serverPod is a Pod on the host image that runs the tests' server out of the envd image.
func serverPod(name string) *corev1.Pod {
	root := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "sandbox", Image: image.Host, Command: []string{"/mnt/agentbox/envd"},
				SecurityContext: &corev1.SecurityContext{RunAsUser: &root, RunAsGroup: &root},
				VolumeMounts:    []corev1.VolumeMount{{Name: "agentbox", MountPath: "/mnt/agentbox", ReadOnly: true}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(49983)},
				}},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
					corev1.ResourceMemory: resource.MustParse("256Mi"), corev1.ResourceCPU: resource.MustParse("1"),
				}},
			}},
			Volumes: []corev1.Volume{{Name: "agentbox", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image.Envd}}}},
		},
	}
}

func (b *bed) create(pod *corev1.Pod) *corev1.Pod {
	b.t.Helper()
	got, err := b.client.CoreV1().Pods(pod.Namespace).Create(b.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// await follows a Pod until ok, or fails the test.
func (b *bed) await(name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	w, err := b.client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Stop()
	pod, err := b.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
	if err == nil && ok(pod) {
		return pod
	}
	for e := range w.ResultChan() {
		if p, isPod := e.Object.(*corev1.Pod); isPod {
			pod = p
			if ok(pod) {
				return pod
			}
		}
	}
	b.t.Fatalf("Pod %s is never %s; last status: %+v", name, what, pod.Status)
	return nil
}

// assertNoGoroutines fails when a stopped agent has left goroutines behind.
func assertNoGoroutines(t testing.TB) {
	t.Helper()
	buf := make([]byte, 8<<20)
	for _, stack := range strings.Split(string(buf[:goruntime.Stack(buf, true)]), "\n\n") {
		for _, owner := range []string{"embedded/node.(", "embedded/runtime/namespaces.(", "embedded/network.(", "embedded/image.("} {
			if strings.Contains(stack, owner) {
				t.Errorf("a goroutine is left:\n%s", stack)
				break
			}
		}
	}
}

func ready(p *corev1.Pod) bool {
	c := condition(&p.Status, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// request speaks to the tests' server in a Pod.
func (b *bed) request(ip, method, path, body string) (int, string) {
	b.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.agent.Dial(ctx, ip, 49983)
	}}
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://pod"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

func (b *bed) shell(ip, script string) string {
	b.t.Helper()
	code, out := b.request(ip, http.MethodPost, "/sh", script)
	if code != http.StatusOK {
		out = fmt.Sprintf("%s(failed)", out)
	}
	return out
}
