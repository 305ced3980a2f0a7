package node

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

// TestDiskPressure has one Pod fill a small disk: that Pod goes and its neighbour stays.
func TestDiskPressure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m,mode=711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	b := newBedIn(t, dir, namespaces.Name)
	for _, name := range []string{"quiet", "filler"} {
		b.create(serverPod(name))
		b.await(name, "ready", ready)
	}
	filler := b.get("filler")
	b.write(filler.Status.PodIP, "dd if=/dev/zero of=/tmp/fill bs=1M count=400")
	filler = b.await("filler", "evicted", evicted)
	if want := "the disk has "; !strings.HasPrefix(filler.Status.Message, want) || !strings.Contains(filler.Status.Message, "this Pod holds ") {
		t.Errorf("the eviction says %q", filler.Status.Message)
	}
	if held := diskUse(filepath.Join(dir, "pods", string(filler.UID)), math.MaxInt); held > 0 {
		t.Errorf("the evicted Pod still holds %d bytes", held)
	}
	quiet, err := b.client.CoreV1().Pods("default").Get(t.Context(), "quiet", metav1.GetOptions{})
	if err != nil || quiet.DeletionTimestamp != nil || quiet.Status.Phase != corev1.PodRunning {
		t.Errorf("its neighbour: %v, %+v", err, quiet.Status)
	}
}

// TestDataDirectoryOnOverlay has the data directory where it is inside a container: on an overlay, which cannot carry
// another one. A Pod runs on a copy of its image all the same, is reset, and is not charged for the copy.
func TestDataDirectoryOnOverlay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can mount an overlay on the machine")
	}
	layers, dir := t.TempDir(), t.TempDir()
	options := "userxattr"
	for _, d := range []string{"lower", "upper", "work"} {
		path := filepath.Join(layers, d)
		if err := os.Mkdir(path, 0o711); err != nil {
			t.Fatal(err)
		}
		options += "," + d + "dir=" + path
	}
	if err := unix.Mount("overlay", dir, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	b := newBedIn(t, dir, namespaces.Name)
	if d := b.agent.Describe(); !strings.Contains(d, "images are copied for every container") {
		t.Errorf("the agent says %q", d)
	}
	pod := serverPod("copied")
	pod.Spec.Containers[0].Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse("4M")
	b.create(pod)
	ip := b.await("copied", "ready", ready).Status.PodIP
	// Both are the user's and root's own as on an overlay, and what the node writes is there.
	const look = "stat -c '%n %U %a' /home/user /tmp /root /etc/passwd; cat /etc/hostname; ls /home/user"
	want := "/home/user user 755\n/tmp root 1777\n/root root 700\n/etc/passwd root 644\ncopied\n"
	if out := b.shell(ip, look); out != want {
		t.Errorf("the sandbox has %q, want %q", out, want)
	}
	if out := b.shell(ip, "echo x >/home/user/planted; rm /etc/passwd; ls /home/user"); out != "planted\n" {
		t.Errorf("written: %q", out)
	}
	w := b.agent.byName("default", "copied")
	if message := w.exceeded(b.get("copied")); message != "" {
		t.Errorf("charged for the copy: %s", message)
	}
	b.annotate("copied", v1alpha1.AnnotationResetID, "once")
	b.await("copied", "reset", func(p *corev1.Pod) bool {
		c := condition(&p.Status, v1alpha1.PodConditionReset)
		return c != nil && c.Status == corev1.ConditionTrue && c.Message == "once" && ready(p)
	})
	if out := b.shell(ip, look); out != want {
		t.Errorf("after the reset the sandbox has %q, want %q", out, want)
	}
	b.write(ip, "head -c 8388608 /dev/zero >/home/user/f")
	b.await("copied", "evicted", evicted)
}

// write starts a command in a Pod without waiting for it: it ends with its Pod at the latest.
func (b *bed) write(ip, script string) {
	b.t.Helper()
	conn, err := b.agent.Dial(b.t.Context(), ip, 49983)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /sh HTTP/1.1\r\nHost: sandbox\r\nContent-Length: %d\r\n\r\n%s", len(script), script); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) get(name string) *corev1.Pod {
	b.t.Helper()
	pod, err := b.client.CoreV1().Pods("default").Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return pod
}

// TestStorageLimits exceeds each of the limits on what a Pod writes. A Pod within its limits stays.
func TestStorageLimits(t *testing.T) {
	b := newBed(t)
	limited := func(name, limit, size string) *corev1.Pod {
		pod := serverPod(name)
		c := &pod.Spec.Containers[0]
		if limit != "" {
			c.Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse(limit)
		}
		v := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
		if size != "" {
			q := resource.MustParse(size)
			v.EmptyDir.SizeLimit = &q
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
		return b.create(pod)
	}
	const write = "head -c 8388608 /dev/zero >"
	for _, c := range []struct{ name, limit, size, script, want string }{
		{"volume", "", "2M", write + "/data/f", "the emptyDir volume data holds 8.4 MB, and its sizeLimit is 2M"},
		{"container", "2M", "", write + "/home/f", "the container sandbox has written 8.4 MB, and its limit of ephemeral-storage is 2M"},
		{"pod", "2M", "", write + "/data/f", "the Pod has written 8.4 MB, and the limits of ephemeral-storage of its containers are 2M together"},
		{"deleted", "2M", "", "exec 3>/home/f; rm /home/f; " + write + "&3; sleep 1000", "the Pod has written 8.4 MB, and the limits of ephemeral-storage of its containers are 2M together"},
	} {
		limited(c.name, c.limit, c.size)
		ip := b.await(c.name, "ready", ready).Status.PodIP
		b.write(ip, c.script)
		pod := b.await(c.name, "evicted", evicted)
		// It may be measured before all is written.
		form := regexp.MustCompile(`[2-9]\.\d MB`)
		if got := form.ReplaceAllString(pod.Status.Message, "8.4 MB"); got != c.want {
			t.Errorf("%s: evicted with %q, want %q", c.name, pod.Status.Message, c.want)
		}
		if s := pod.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 137 {
			t.Errorf("%s: the container of the evicted Pod is %+v", c.name, pod.Status.ContainerStatuses[0].State)
		}
	}

	pod := limited("within", "64M", "64M")
	ip := b.await("within", "ready", ready).Status.PodIP
	if out := b.shell(ip, "head -c 8388608 /dev/zero >/data/f && head -c 8388608 /dev/zero >/home/f && mkdir /data/d && ln /data/f /data/d/g"); out != "" {
		t.Fatal(out)
	}
	w := b.agent.byName("default", "within")
	if message := w.exceeded(b.get("within")); message != "" {
		t.Errorf("within its limits: %s", message)
	}

	// What was evicted stays evicted when the agent starts again, and goes when it is deleted.
	before := b.get("pod")
	if err := b.agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.await(pod.Name, "ready", ready)
	if after := b.get("pod"); !equality.Semantic.DeepEqual(before.Status, after.Status) {
		t.Errorf("after a restart the evicted Pod reads\n%+v\nand it was\n%+v", after.Status, before.Status)
	}
	if err := b.client.CoreV1().Pods("default").Delete(t.Context(), "pod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the evicted Pod is gone", func() bool {
		_, err := b.client.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestDiskUseCountsWhatIsHeld(t *testing.T) {
	dir := t.TempDir()
	path := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(path("file"), make([]byte, mib), 0o600))
	check(os.Link(path("file"), path("link")))
	sparse, err := os.Create(path("sparse"))
	check(err)
	defer sparse.Close()
	check(sparse.Truncate(1 << 40))
	elsewhere := t.TempDir()
	check(os.WriteFile(filepath.Join(elsewhere, "file"), make([]byte, 8*mib), 0o600))
	check(os.Symlink(elsewhere, path("away")))
	// Deeper than a path can name, and than there are descriptors.
	const depth = 3000
	fd, err := openDir(unix.AT_FDCWD, dir)
	check(err)
	for range depth {
		check(unix.Mkdirat(fd, "directory", 0o700))
		check(unix.Mkdirat(fd, "beside", 0o700))
		next, err := openDir(fd, "directory")
		check(err)
		check(unix.Close(fd))
		fd = next
	}
	deep, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
	check(err)
	_, err = unix.Write(deep, make([]byte, mib))
	check(err)
	check(unix.Close(deep))
	var st unix.Stat_t
	check(unix.Fstat(fd, &st))
	check(unix.Close(fd))
	t.Cleanup(func() {
		if err := namespaces.RemoveTree(path("directory")); err != nil {
			t.Error(err)
		}
	})
	directories := uint64(st.Blocks) * 512 * (2*depth + 1)
	if held := diskUse(dir, math.MaxInt); held < 2*mib+directories || held > 3*mib+directories {
		t.Errorf("%d bytes, want about 2 MiB and %d of directories", held, directories)
	}
	if held := diskUse(dir, 100); held >= 2*mib+directories {
		t.Errorf("%d bytes in the first hundred files", held)
	}
}

const mib = 1 << 20

func openDir(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// TestDiskUseOfAMovingTree has directories renamed all the time at every level above a file, and the file is found.
func TestDiskUseOfAMovingTree(t *testing.T) {
	const levels = 4
	dir := t.TempDir()
	at := dir
	for range levels {
		for i := range 1000 { // which the directory is looked for among
			if err := os.WriteFile(filepath.Join(at, strconv.Itoa(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		at = filepath.Join(at, "a")
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(at, "file"), make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	var parents []int
	at = dir
	for range levels {
		fd, err := openDir(unix.AT_FDCWD, at)
		if err != nil {
			t.Fatal(err)
		}
		parents = append(parents, fd)
		at = filepath.Join(at, "a")
	}
	stop := make(chan struct{})
	var movers sync.WaitGroup
	for _, fd := range parents {
		movers.Go(func() {
			defer func() { _ = unix.Close(fd) }()
			for from, to := "a", "b"; ; from, to = to, from {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat(fd, from, fd, to)
				}
			}
		})
	}
	found := 0
	for range 12 {
		if diskUse(dir, math.MaxInt) >= mib {
			found++
		}
	}
	close(stop)
	movers.Wait()
	if found < 6 {
		t.Errorf("the file was found %d times of 12", found)
	}
	if use := diskUse(dir, math.MaxInt); use < mib || use > 2*mib {
		t.Errorf("at rest the tree holds %d bytes", use)
	}
}

// TestEvictionIsForWhatWasMeasured measures a Pod, empties it, and only then decides.
func TestEvictionIsForWhatWasMeasured(t *testing.T) {
	w := &worker{wake: make(chan struct{}, 1)}
	before := w.wiped()
	w.forgetEviction()
	w.setEviction("what the former sandbox wrote", before)
	if w.eviction != "" {
		t.Errorf("the next sandbox goes for %s", w.eviction)
	}
	w.setEviction("what this sandbox wrote", w.wiped())
	if w.eviction == "" {
		t.Error("no eviction for what the sandbox wrote itself")
	}
	w.forgetEviction()
	if w.eviction != "" {
		t.Errorf("a reset leaves %s", w.eviction)
	}
}
