package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/apiserver"
	"navix.sh/agentbox/controller/embedded/image"
)

// agentVariable makes the test binary an agent: "<kubeconfig> <data directory> <folder of the binaries> <runtime>".
const agentVariable = "AGENTBOX_TEST_AGENT"

// agentMain is a node agent in a process of its own, which a test kills.
func agentMain(args string) int {
	f := strings.Split(args, "\n")
	config, err := clientcmd.BuildConfigFromFlags("", f[0])
	if err == nil {
		_, err = Start(context.Background(), Options{Config: config, NodeName: apiserver.NodeName, DataDir: f[1], BinDir: f[2], Runtime: f[3]})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	return 0
}

// startAgent starts an agent in a process of its own.
func startAgent(t *testing.T, api *apiserver.Server, b *bed) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), agentVariable+"="+strings.Join([]string{api.Kubeconfig, b.dir, bin(t), b.runtime}, "\n"))
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close() })
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("ready"))); err != nil {
		t.Fatalf("the agent does not start: %v", err)
	}
	return child
}

func killAgent(t *testing.T, child *exec.Cmd) {
	t.Helper()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
}

// newKillBed is a bed whose agents are processes of their own, which can be killed. An empty runtime is the built-in one.
func newKillBed(t *testing.T, runtime string) (*apiserver.Server, *bed) {
	t.Helper()
	api, err := apiserver.Start(t.Context(), apiserver.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Stop)
	b := &bed{t: t, config: api.Config, dir: t.TempDir(), runtime: runtime}
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		t.Fatal(err)
	}
	return api, b
}

// TestKilledAgent shows that an agent that is killed leaves its Pods running, and that the next one takes them over,
// ends what was deleted meanwhile, and starts what has ended.
func TestKilledAgent(t *testing.T) { eachRuntime(t, testKilledAgent) }

func testKilledAgent(t *testing.T, runtime string) {
	api, b := newKillBed(t, runtime)
	child := startAgent(t, api, b)
	volume := corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	before := map[string]*corev1.Pod{}
	for _, name := range []string{"stays", "deleted", "dies"} {
		p := serverPod(name)
		p.Spec.Volumes = append(p.Spec.Volumes, volume)
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "disk", MountPath: "/disk"})
		if name == "dies" {
			// It ends when the test says so, without an agent.
			p.Spec.Containers[0].Command = []string{"sh", "-c", "/mnt/agentbox/envd & while ! test -e /disk/end; do sleep 0.02; done; rm /disk/end; exit 9"}
		}
		b.create(p)
		before[name] = b.await(name, "ready", ready)
	}

	killAgent(t, child)
	zero := int64(0)
	if err := b.client.CoreV1().Pods("default").Delete(t.Context(), "deleted", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(b.dir, "pods", string(before["dies"].UID), "volumes", "disk", "end")
	if err := os.WriteFile(disk, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(b.dir, "pods", string(before["deleted"].UID))

	b.start()
	pod := b.await("stays", "ready", ready)
	if cs, was := pod.Status.ContainerStatuses[0], before["stays"].Status.ContainerStatuses[0]; cs.ContainerID != was.ContainerID || cs.RestartCount != 0 || pod.Status.PodIP != before["stays"].Status.PodIP {
		t.Errorf("the Pod was not taken over: %+v, was %+v", cs, was)
	}
	if out := b.shell(pod.Status.PodIP, "hostname"); out != "stays\n" {
		t.Errorf("the Pod answers %q", out)
	}
	died := b.await("dies", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 })
	if last := died.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 9 {
		t.Errorf("the end without an agent is %+v", last)
	}
	waitFor(t, "the deleted Pod's files are removed", func() bool { _, err := os.Stat(gone); return os.IsNotExist(err) })

	// A Pod that was taken over can do everything: it is replaced, and deleted.
	b.setImage("stays", image.Host+":again")
	b.await("stays", "replaced", func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })

	// A clean stop leaves nothing but word of it, and the next agent starts the Pods anew.
	stopped := time.Now()
	if err := b.agent.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Join(b.dir, "pods"))
	if err != nil || len(entries) > 0 {
		t.Errorf("after the stop %d Pods are left, %v", len(entries), err)
	}
	assertNothingLeft(t, b.dir)
	after := time.Now()
	b.await("stays", "stopped", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return !ready(p) && p.Status.Phase == corev1.PodRunning && s.State.Waiting != nil && s.LastTerminationState.Terminated != nil
	})
	time.Sleep(time.Second) // the API counts in seconds
	b.start()
	pod = b.await("stays", "ready anew", func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 2 })
	last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.Reason != v1alpha1.ReasonPlatformStopped || last.FinishedAt.Before(&metav1.Time{Time: stopped.Add(-time.Second)}) || last.FinishedAt.After(after) {
		t.Errorf("the end with the platform is %+v, want one between %s and %s", last, stopped, after)
	}
	if err := b.agent.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	assertNothingLeft(t, b.dir)
}

// TestKilledInStart kills agents while Pods start, and shows that the next one has every Pod run once and connected.
func TestKilledInStart(t *testing.T) {
	api, b := newKillBed(t, "")
	child := startAgent(t, api, b)
	const perRound = 4
	var names []string
	for _, wait := range []time.Duration{0, 5, 15, 40} {
		watcher, err := fsnotify.NewWatcher()
		if err == nil {
			err = watcher.Add(filepath.Join(b.dir, "pods"))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range perRound {
			p := serverPod(fmt.Sprintf("start-%d-%d", wait, i))
			names = append(names, p.Name)
			b.create(p)
		}
		<-watcher.Events // the first Pod's directory
		time.Sleep(wait * time.Millisecond)
		killAgent(t, child)
		watcher.Close()
		child = startAgent(t, api, b)
		for _, name := range names[len(names)-perRound:] {
			b.await(name, "ready", ready)
			if n := countLaunchers(t, name); n != 1 {
				t.Errorf("killed after %d ms: %d sandboxes of the Pod %s run", wait, n, name)
			}
		}
	}
	killAgent(t, child)
	b.start()
	for _, name := range names {
		p := b.await(name, "ready", ready)
		if b.agent.network.Outbound() {
			if out := b.shell(p.Status.PodIP, "cat /proc/net/route"); !strings.Contains(out, "eth0") {
				t.Errorf("the Pod %s is not connected: %q", name, out)
			}
		}
		if out := b.shell(p.Status.PodIP, "ps ax | grep -c '[e]nvd'"); out != "1\n" {
			t.Errorf("in the Pod %s run %q servers, want one", name, out)
		}
	}
	if err := b.agent.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	assertNothingLeft(t, b.dir)
	for _, name := range names {
		if n := countLaunchers(t, name); n != 0 {
			t.Errorf("%d sandboxes of the Pod %s are left", n, name)
		}
	}
}

// countLaunchers counts the first processes of the sandboxes with a host name.
func countLaunchers(t *testing.T, hostname string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if data, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(data), "sandbox-init\x00pod\x00"+hostname+"\x00") {
			n++
		}
	}
	return n
}

// TestKilledInReset kills agents at every step of a reset, and shows that the next one brings it to its end.
func TestKilledInReset(t *testing.T) {
	api, b := newKillBed(t, "")
	child := startAgent(t, api, b)
	p := serverPod("reset")
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "disk", MountPath: "/disk"})
	b.create(p)
	p = b.await("reset", "ready", ready)
	dir := filepath.Join(b.dir, "pods", string(p.UID))
	containers, volumes := filepath.Join(dir, "containers"), filepath.Join(dir, "volumes")
	for id, step := range map[string]struct {
		dir  string
		what func(fsnotify.Event) bool
	}{
		"removed":  {containers, func(e fsnotify.Event) bool { return e.Has(fsnotify.Rename) }},
		"wiped":    {volumes, func(e fsnotify.Event) bool { return e.Has(fsnotify.Create) }},
		"recorded": {dir, func(e fsnotify.Event) bool { return e.Has(fsnotify.Create) && filepath.Base(e.Name) == stateName }},
		"made":     {containers, func(e fsnotify.Event) bool { return e.Has(fsnotify.Create) && !strings.Contains(e.Name, ".trash") }},
	} {
		before := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, containerIDPrefix)
		traces := []string{filepath.Join(volumes, "disk", "trace"), filepath.Join(containers, before, "upper", "trace")}
		for _, path := range traces {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		watcher, err := fsnotify.NewWatcher()
		if err == nil {
			err = watcher.Add(step.dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.annotate("reset", v1alpha1.AnnotationResetID, id)
		for e := range watcher.Events {
			if step.what(e) {
				break
			}
		}
		killAgent(t, child)
		watcher.Close()

		child = startAgent(t, api, b)
		p = b.await("reset", "reset after "+id, func(p *corev1.Pod) bool { return resetDone(p, id) && ready(p) })
		if p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("killed when %s: the reset counts as a crash: %+v", id, p.Status)
		}
		after := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, containerIDPrefix)
		if after == before {
			t.Errorf("killed when %s: the container was kept", id)
		}
		for _, path := range append(traces, filepath.Join(containers, after, "upper", "trace")) {
			if _, err := os.Lstat(path); !os.IsNotExist(err) {
				t.Errorf("killed when %s: %s is left, %v", id, path, err)
			}
		}
	}
	killAgent(t, child)
	b.start()
	p = b.await("reset", "ready", ready)
	if out := b.shell(p.Status.PodIP, "ps ax | grep -c '[e]nvd'"); out != "1\n" {
		t.Errorf("in the Pod run %q servers, want one", out)
	}
	if err := b.agent.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	assertNothingLeft(t, b.dir)
}

// assertNothingLeft looks for what an agent makes on the machine outside of its directory.
func assertNothingLeft(t *testing.T, dir string) {
	t.Helper()
	interfaces, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if i.Name() == "abx-"+shortName(dir) {
			t.Errorf("the bridge %s is left", i.Name())
		}
	}
	var groups []string
	for _, depth := range []string{"*/", "*/*/", "*/*/*/"} {
		found, err := filepath.Glob("/sys/fs/cgroup/" + depth + groupName(dir))
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, found...)
	}
	if len(groups) > 0 {
		t.Errorf("control groups are left: %v", groups)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if data, err := os.ReadFile(p); err == nil && strings.Contains(string(data), dir+"/pods") {
			t.Errorf("a process has files of the agent mounted: %s", p)
		}
	}
}
