package apiserver_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestFullDisk fills the disk under a running server: what it has kept back lets it write, also after a start on the
// full disk, and it keeps as much back again when there is room.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can mount a small file system")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=256m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(disk, "data")
	ballast := func(want int64) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			var size int64
			st, err := os.Stat(filepath.Join(dir, "ballast"))
			if err == nil {
				size = st.Sys().(*syscall.Stat_t).Blocks * 512
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if size == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the ballast holds %d bytes, want %d", size, want)
			}
			time.Sleep(time.Millisecond) // nothing says when the server has looked at the disk
		}
	}
	fill := func(name string) {
		t.Helper()
		f, err := os.Create(filepath.Join(disk, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for chunk := make([]byte, 64<<10); err == nil; {
			_, err = f.Write(chunk)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	write := func(c kubernetes.Interface, name string) {
		t.Helper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": strings.Repeat("b", 100<<10)}}
		if _, err := c.CoreV1().ConfigMaps("default").Create(context.Background(), cm, metav1.CreateOptions{}); err != nil {
			t.Errorf("a write on the full disk: %v", err)
		}
	}

	const size = 256 << 20 / 16
	s := start(t, dir)
	ballast(size)
	fill("filler")
	ballast(0)
	write(kubernetes.NewForConfigOrDie(s.Config), "running")
	s.Stop()
	s = start(t, dir)
	write(kubernetes.NewForConfigOrDie(s.Config), "started")
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	ballast(size)
	s.Stop()

	// What a stopped server has kept back is there for its next start.
	fill("filler")
	s = start(t, dir)
	defer s.Stop()
	ballast(0)
	write(kubernetes.NewForConfigOrDie(s.Config), "again")
}
