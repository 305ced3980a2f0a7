package node

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/image"
)

// TestAgent runs everything that one agent can show on one API server.
func TestAgent(t *testing.T) { eachRuntime(t, testAgent) }

func testAgent(t *testing.T, runtime string) {
	b := newBedOn(t, runtime)
	for name, test := range map[string]func(*testing.T, *bed){
		"Node": testNode, "Runs": testRuns, "Environment": testEnvironment, "Volumes": testVolumes, "Init": testInit,
		"Reset": testReset, "Swap": testSwap, "Crash": testCrash, "OutOfMemory": testOutOfMemory, "Errors": testErrors,
		"Delete": testDelete, "Claims": testClaims, "RunToEnd": testRunToEnd, "Probes": testProbes, "Logs": testLogs,
		"RuntimeClass": testRuntimeClass,
	} {
		t.Run(name, func(t *testing.T) {
			c := *b
			c.t = t
			test(t, &c)
		})
	}
}

func testNode(t *testing.T, b *bed) {
	n, err := b.client.CoreV1().Nodes().Get(t.Context(), "embedded", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n.Annotations[v1alpha1.AnnotationPodReset] != v1alpha1.PodResetV1 {
		t.Errorf("annotations %v do not announce the reset", n.Annotations)
	}
	if n.Status.Capacity.Pods().Value() == 0 || n.Status.Capacity.Memory().Value() == 0 {
		t.Errorf("capacity is %v", n.Status.Capacity)
	}
}

func testRuns(t *testing.T, b *bed) {
	for i, host := range []string{"127.0.0.1", "0.0.0.0", "::1", "$(POD_IP)"} {
		name := fmt.Sprint("runs", i)
		p := serverPod(name)
		p.Spec.Containers[0].Args = []string{host}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
		b.create(p)
		pod := b.await(name, "ready", ready)
		if got := b.shell(pod.Status.PodIP, "hostname; id -u"); got != name+"\n0\n" {
			t.Errorf("listening on %s: host name and user are %q", host, got)
		}
		cs := pod.Status.ContainerStatuses[0]
		if !strings.HasPrefix(cs.ContainerID, containerIDPrefix) || !strings.HasPrefix(cs.ImageID, "sha256:") || cs.RestartCount != 0 {
			t.Errorf("container status %+v", cs)
		}
	}
}

func testEnvironment(t *testing.T, b *bed) {
	b.createSecret("settings", map[string][]byte{"token": []byte("s3cret"), "OTHER": []byte("x")})
	p := serverPod("environment")
	p.Labels = map[string]string{"team": "blue"}
	c := &p.Spec.Containers[0]
	c.EnvFrom = []corev1.EnvFromSource{{Prefix: "FROM_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	c.Env = []corev1.EnvVar{
		{Name: "PLAIN", Value: "a"},
		{Name: "EXPANDED", Value: "$(PLAIN)-$$(PLAIN)-$(UNKNOWN)"},
		{Name: "EMPTY"},
		{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "token"}}},
		{Name: "TEAM", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['team']"}}},
		{Name: "MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
	}
	b.create(p)
	pod := b.await("environment", "ready", ready)
	for name, want := range map[string]string{
		"PLAIN": "a", "EXPANDED": "a-$(PLAIN)-$(UNKNOWN)", "EMPTY": "", "SECRET": "s3cret", "TEAM": "blue", "MEMORY": "256",
		"FROM_OTHER": "x", "HOME": "/root", "HOSTNAME": "environment",
	} {
		if _, got := b.request(pod.Status.PodIP, http.MethodGet, "/env?name="+name, ""); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func (b *bed) createSecret(name string, data map[string][]byte) {
	b.t.Helper()
	_, err := b.client.CoreV1().Secrets("default").Create(b.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
}

func testVolumes(t *testing.T, b *bed) {
	b.createSecret("files", map[string][]byte{"a": []byte("1"), "b": []byte("2")})
	p := serverPod("volumes")
	size, mode := resource.MustParse("1Mi"), int32(0o400)
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}},
		corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: "files", DefaultMode: &mode, Items: []corev1.KeyToPath{{Key: "a", Path: "deep/a"}},
		}}},
	)
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: "disk", MountPath: "/disk"}, corev1.VolumeMount{Name: "disk", MountPath: "/part", SubPath: "x/y"},
		corev1.VolumeMount{Name: "memory", MountPath: "/memory"}, corev1.VolumeMount{Name: "secret", MountPath: "/etc/secret"})
	b.create(p)
	pod := b.await("volumes", "ready", ready)
	got := b.shell(pod.Status.PodIP, `
		echo 1 > /part/f && cat /disk/x/y/f
		head -c 2000000 /dev/zero 2>/dev/null > /memory/big || echo full
		cat /etc/secret/deep/a; cd /etc/secret; echo *; find deep/a -printf '%m\n'
		touch /etc/secret/x 2>/dev/null || echo read-only
		touch /mnt/agentbox/x 2>/dev/null || echo read-only
		touch /usr/x 2>/dev/null || echo read-only`)
	if want := "1\nfull\n1deep\n400\nread-only\nread-only\nread-only\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func testInit(t *testing.T, b *bed) {
	p := serverPod("init")
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	mount := corev1.VolumeMount{Name: "shared", MountPath: "/shared"}
	root := &corev1.SecurityContext{RunAsUser: new(int64)}
	p.Spec.InitContainers = []corev1.Container{
		{Name: "first", Image: image.Host, Command: []string{"sh", "-c", "echo first >> /shared/log"}, VolumeMounts: []corev1.VolumeMount{mount}, SecurityContext: root},
		{Name: "second", Image: image.Host, Command: []string{"sh", "-c"}, Args: []string{"echo second >> /shared/log"}, VolumeMounts: []corev1.VolumeMount{mount}, SecurityContext: root},
	}
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, mount)
	b.create(p)
	pod := b.await("init", "ready", ready)
	if got := b.shell(pod.Status.PodIP, "cat /shared/log"); got != "first\nsecond\n" {
		t.Errorf("the init containers left %q", got)
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 || !s.Ready {
			t.Errorf("init container status %+v", s)
		}
	}
}

func (b *bed) annotate(name, key, value string) {
	b.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if _, err := b.client.CoreV1().Pods("default").Patch(b.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// testReset shows that nothing of one sandbox is left for the next.
func testReset(t *testing.T, b *bed) {
	p := serverPod("reset")
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "disk", MountPath: "/disk"}, corev1.VolumeMount{Name: "memory", MountPath: "/memory"})
	p.Spec.InitContainers = []corev1.Container{{
		Name: "prepare", Image: image.Host, Command: []string{"sh", "-c", "echo prepared > /disk/prepared"},
		VolumeMounts: []corev1.VolumeMount{{Name: "disk", MountPath: "/disk"}}, SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64)},
	}}
	b.create(p)
	before := b.await("reset", "ready", ready)
	const places = "/disk /memory /tmp /var/tmp /dev/shm /run /home/user /root /etc /var/lib /opt"
	b.shell(before.Status.PodIP, `for d in `+places+`; do echo trace > $d/trace-of-a-tenant; done; chmod 000 /home/user
		(setsid sleep 12345 >/dev/null 2>&1 &); ipcmk -M 1000 >/dev/null 2>&1; mkfifo /disk/pipe; ln -s / /disk/root`)

	b.annotate("reset", v1alpha1.AnnotationResetID, "first")
	after := b.await("reset", "reset", func(p *corev1.Pod) bool { return resetDone(p, "first") })
	if !ready(after) || after.Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("one write does not say all of it: %+v", after.Status)
	}
	if after.Status.ContainerStatuses[0].RestartCount != 0 || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("a reset counts as a crash or changes the address: %+v", after.Status)
	}
	got := b.shell(after.Status.PodIP, `find `+places+` -name 'trace-of-a-tenant' -o -name pipe -o -name root -maxdepth 1 2>/dev/null
		ps ax | grep -c '[s]leep 12345'; ipcs -m | grep -c 0x; find /home/user -maxdepth 0 -printf '%m\n'; cat /disk/prepared`)
	if want := "/root\n0\n0\n755\nprepared\n"; got != want {
		t.Errorf("after the reset the Pod shows %q, want %q", got, want)
	}
	waitFor(t, "the old files are deleted", func() bool {
		found := 0
		_ = filepath.Walk(b.dir, func(path string, _ os.FileInfo, _ error) error {
			if strings.Contains(path, "trace-of-a-tenant") {
				found++
			}
			return nil
		})
		return found == 0
	})
	// The same request again changes nothing; the next one resets again.
	b.annotate("reset", v1alpha1.AnnotationResetID, "second")
	again := b.await("reset", "reset again", func(p *corev1.Pod) bool { return resetDone(p, "second") })
	if again.Status.ContainerStatuses[0].ContainerID == after.Status.ContainerStatuses[0].ContainerID {
		t.Error("the second reset kept the container")
	}
}

func resetDone(p *corev1.Pod, id string) bool {
	c := condition(&p.Status, v1alpha1.PodConditionReset)
	return c != nil && c.Status == corev1.ConditionTrue && c.Message == id
}

// waitFor polls for what no event tells about.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("never: %s", what)
}

func (b *bed) setImage(name, ref string) {
	b.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"sandbox","image":%q}]}}`, ref)
	if _, err := b.client.CoreV1().Pods("default").Patch(b.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func testSwap(t *testing.T, b *bed) {
	b.create(serverPod("swap"))
	before := b.await("swap", "ready", ready)
	b.setImage("swap", image.Host+":other")
	after := b.await("swap", "swapped", func(p *corev1.Pod) bool {
		cs := p.Status.ContainerStatuses[0]
		return ready(p) && cs.Image == image.Host+":other"
	})
	cs := after.Status.ContainerStatuses[0]
	if cs.RestartCount != 1 || cs.ContainerID == before.Status.ContainerStatuses[0].ContainerID || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("after the swap: %+v", after.Status)
	}
	b.setImage("swap", "127.0.0.1:1/no/registry:here")
	failed := b.await("swap", "failing to pull", func(p *corev1.Pod) bool { return waitingReason(p) == image.ReasonPull })
	if m := failed.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(m, "connection refused") {
		t.Errorf("the message %q lacks the registry's answer", m)
	}
	b.await("swap", "backing off", func(p *corev1.Pod) bool { return waitingReason(p) == "ImagePullBackOff" })
	b.setImage("swap", image.Host)
	b.await("swap", "back", func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].Image == image.Host })
}

func waitingReason(p *corev1.Pod) string {
	if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
		return ""
	}
	return p.Status.ContainerStatuses[0].State.Waiting.Reason
}

func testCrash(t *testing.T, b *bed) {
	b.create(serverPod("crash"))
	before := b.await("crash", "ready", ready)
	crash := func(ip string) {
		conn, err := b.agent.Dial(t.Context(), ip, 49983)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /exit HTTP/1.0\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1))
	}
	crash(before.Status.PodIP)
	after := b.await("crash", "restarted", func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	last := after.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 7 || last.Reason != "Error" || last.ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the last state is %+v", last)
	}
	crash(after.Status.PodIP)
	b.await("crash", "backing off", func(p *corev1.Pod) bool {
		return waitingReason(p) == "CrashLoopBackOff" && !ready(p) && p.Status.Phase == corev1.PodRunning
	})
}

func testOutOfMemory(t *testing.T, b *bed) {
	if !b.agent.runtime.Limits("memory") {
		t.Skip("this machine does not let the agent limit memory")
	}
	p := serverPod("memory")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers[0].Command = []string{"/bin/sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done"}
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	b.create(p)
	pod := b.await("memory", "failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if s := pod.Status.ContainerStatuses[0].State.Terminated; s == nil || s.Reason != "OOMKilled" || s.ExitCode != 137 {
		t.Errorf("the container ended with %+v", s)
	}
}

func testErrors(t *testing.T, b *bed) {
	for name, test := range map[string]struct {
		change  func(*corev1.Pod)
		reason  string
		message string
	}{
		"bad-image":  {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "UPPER/case" }, "InvalidImageName", "UPPER/case"},
		"no-builtin": {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "agentbox.local/other" }, "InvalidImageName", image.Host},
		"never": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "a/b"
			p.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
		}, "ErrImageNeverPull", "a/b"},
		"no-volume":  {func(p *corev1.Pod) { p.Spec.Volumes[0].Image.Reference = "127.0.0.1:1/no/image" }, "ErrImagePull", "refused"},
		"no-program": {func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/no/such"} }, "RunContainerError", "/no/such"},
		"privileged": {func(p *corev1.Pod) { yes := true; p.Spec.Containers[0].SecurityContext.Privileged = &yes }, "CreateContainerConfigError", "privileged"},
		"runtime":    {func(p *corev1.Pod) { s := "kata-fc"; p.Spec.RuntimeClassName = &s }, "CreatePodSandboxError", "kata-fc"},
		"host-path": {func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}, "CreateContainerConfigError", "hostPath"},
		"no-secret": {func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}}}}
		}, "CreateContainerConfigError", "absent"},
		"hooks": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}
		}, "CreateContainerConfigError", "lifecycle"},
		"run-as-root": {func(p *corev1.Pod) { yes := true; p.Spec.Containers[0].SecurityContext.RunAsNonRoot = &yes }, "CreateContainerConfigError", "root"},
	} {
		p := serverPod(name)
		test.change(p)
		b.create(p)
		pod := b.await(name, test.reason, func(p *corev1.Pod) bool { return waitingReason(p) == test.reason })
		if m := pod.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(m, test.message) {
			t.Errorf("%s: the message %q does not name %q", name, m, test.message)
		}
		if pod.Status.Phase != corev1.PodPending && name != "no-program" {
			t.Errorf("%s: the phase is %s", name, pod.Status.Phase)
		}
	}
	b.awaitEvent("runtime", "FailedCreatePodSandBox", "kata-fc")

	p := serverPod("init-no-image")
	p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "127.0.0.1:1/no/such:image"}}
	b.create(p)
	b.awaitEvent("init-no-image", "ErrImagePull", "container first: ")
}

// awaitEvent waits until an event about a Pod has a reason and a message with a text in it.
func (b *bed) awaitEvent(pod, reason, text string) corev1.Event {
	b.t.Helper()
	var found corev1.Event
	waitFor(b.t, "an event "+reason+" about "+pod, func() bool {
		list, err := b.client.CoreV1().Events("default").List(b.t.Context(), metav1.ListOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		i := slices.IndexFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == pod && e.Reason == reason && strings.Contains(e.Message, text)
		})
		if i >= 0 {
			found = list.Items[i]
		}
		return i >= 0
	})
	return found
}

// testRuntimeClass runs a Pod with each runtime on one node.
func testRuntimeClass(t *testing.T, b *bed) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		p := serverPod("class-" + runtime)
		p.Spec.RuntimeClassName = &runtime
		b.create(p)
		pod := b.await(p.Name, "ready", ready)
		if got := b.shell(pod.Status.PodIP, "hostname"); got != p.Name+"\n" {
			t.Errorf("the host name is %q", got)
		}
	})
}

func testDelete(t *testing.T, b *bed) {
	p := serverPod("delete")
	grace := int64(30)
	p.Spec.TerminationGracePeriodSeconds = &grace
	p.Spec.Containers[0].Command = []string{"/bin/sh", "-c", "trap 'exit 0' TERM; /mnt/agentbox/envd & wait"}
	pod := b.create(p)
	b.await("delete", "ready", ready)
	if err := b.client.CoreV1().Pods("default").Delete(t.Context(), "delete", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the Pod is gone", func() bool {
		_, err := b.client.CoreV1().Pods("default").Get(t.Context(), "delete", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if _, err := os.Stat(filepath.Join(b.dir, "pods", string(pod.UID))); !os.IsNotExist(err) {
		t.Errorf("files of the deleted Pod are left: %v", err)
	}
	if _, err := b.agent.Dial(t.Context(), pod.Status.PodIP, 49983); err == nil {
		t.Error("the deleted Pod still answers")
	}

	// One that a finalizer holds is ended all the same, and goes when the finalizer does.
	held := serverPod("held")
	held.Finalizers = []string{"test.navix.sh/hold"}
	b.create(held)
	b.await("held", "ready", ready)
	if err := b.client.CoreV1().Pods("default").Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.await("held", "terminated", func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil && p.Status.ContainerStatuses[0].State.Terminated != nil && !ready(p)
	})
	if _, err := b.client.CoreV1().Pods("default").Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the held Pod is gone", func() bool {
		_, err := b.client.CoreV1().Pods("default").Get(t.Context(), "held", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// testClaims keeps a file in a claim over the life of a Pod, and over a reset.
func testClaims(t *testing.T, b *bed) {
	claims := b.client.CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claims1", "claims2"} {
		p := serverPod(name)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: name == "claims2"},
		}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
		b.create(p)
	}
	first, second := b.await("claims1", "ready", ready), b.await("claims2", "ready", ready)
	b.shell(first.Status.PodIP, "echo kept > /data/file")
	b.annotate("claims1", v1alpha1.AnnotationResetID, "once")
	b.await("claims1", "reset", func(p *corev1.Pod) bool { return resetDone(p, "once") })
	for _, p := range []*corev1.Pod{first, second} {
		if out := b.shell(p.Status.PodIP, "cat /data/file"); out != "kept\n" {
			t.Errorf("%s reads %q", p.Name, out)
		}
	}
	if out := b.shell(second.Status.PodIP, "touch /data/x 2>/dev/null || echo read-only"); out != "read-only\n" {
		t.Errorf("a read-only claim: %q", out)
	}
	if bound, err := claims.Get(t.Context(), "data", metav1.GetOptions{}); err != nil || bound.Status.Phase != corev1.ClaimBound {
		t.Errorf("the claim is %+v, %v", bound.Status, err)
	}
	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the claim's files are deleted", func() bool {
		_, err := os.Stat(b.agent.claimDir(claim.UID))
		return os.IsNotExist(err)
	})
}

func testRunToEnd(t *testing.T, b *bed) {
	for code, phase := range map[string]corev1.PodPhase{"0": corev1.PodSucceeded, "3": corev1.PodFailed} {
		p := serverPod("end" + code)
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Command = []string{"sh", "-c", "exit " + code}
		b.create(p)
		pod := b.await(p.Name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
		if s := pod.Status.ContainerStatuses[0].State.Terminated; s == nil || fmt.Sprint(s.ExitCode) != code {
			t.Errorf("the container ended with %+v", pod.Status.ContainerStatuses[0].State)
		}
	}
}

func testProbes(t *testing.T, b *bed) {
	p := serverPod("probes")
	c := &p.Spec.Containers[0]
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/tmp/ready"}}}, PeriodSeconds: 1, FailureThreshold: 1,
	}
	c.LivenessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "! test -e /tmp/dead"}}}, PeriodSeconds: 1, FailureThreshold: 1,
	}
	b.create(p)
	pod := b.await("probes", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if ready(pod) {
		t.Error("the Pod is ready before its probe succeeds")
	}
	waitFor(t, "the server answers", func() bool {
		conn, err := b.agent.Dial(context.Background(), pod.Status.PodIP, 49983)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	b.shell(pod.Status.PodIP, "touch /tmp/ready")
	b.await("probes", "ready", ready)
	b.shell(pod.Status.PodIP, "rm /tmp/ready")
	b.await("probes", "not ready", func(p *corev1.Pod) bool { return !ready(p) })
	if e := b.awaitEvent("probes", "Unhealthy", "Readiness probe failed: "); e.InvolvedObject.FieldPath != "spec.containers{sandbox}" || e.InvolvedObject.UID != pod.UID {
		t.Errorf("the event is about %+v", e.InvolvedObject)
	}
	b.shell(pod.Status.PodIP, "touch /tmp/dead")
	b.await("probes", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 })
	b.awaitEvent("probes", "Unhealthy", "Liveness probe failed: ")
	b.awaitEvent("probes", "Killing", "Container sandbox failed liveness probe, will be restarted")
}
