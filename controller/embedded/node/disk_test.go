package node

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"navix.sh/agentbox/controller/embedded/apiserver/apiservertest"
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
	b := &bed{t: t, config: apiservertest.StartForTest(t), dir: dir}
	var err error
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(func() {
		if err := b.agent.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"quiet", "filler"} {
		b.create(serverPod(name))
		b.await(name, "ready", ready)
	}
	filler := b.await("filler", "ready", ready)
	gone, err := b.client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=filler", ResourceVersion: filler.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Stop()
	// The command ends with its Pod or when the disk is full, whichever comes first.
	conn, err := b.agent.Dial(t.Context(), filler.Status.PodIP, 49983)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const fill = "dd if=/dev/zero of=/tmp/fill bs=1M count=400"
	if _, err := conn.Write([]byte("POST /sh HTTP/1.1\r\nHost: sandbox\r\nContent-Length: " + strconv.Itoa(len(fill)) + "\r\n\r\n" + fill)); err != nil {
		t.Fatal(err)
	}
	for event := range gone.ResultChan() {
		if event.Type == "DELETED" {
			break
		}
	}
	if _, err := b.client.CoreV1().Pods("default").Get(t.Context(), "filler", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Pod that filled the disk: %v", err)
	}
	quiet, err := b.client.CoreV1().Pods("default").Get(t.Context(), "quiet", metav1.GetOptions{})
	if err != nil || quiet.DeletionTimestamp != nil || quiet.Status.Phase != corev1.PodRunning {
		t.Errorf("its neighbour: %v, %+v", err, quiet.Status)
	}
}

func TestDiskUseCountsWhatIsHeld(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if held := diskUse(dir); held < 1<<20 || held > 2<<20 {
		t.Errorf("%d bytes, want about 1 MiB", held)
	}
}
