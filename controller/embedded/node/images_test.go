package node

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestImagesInUseStay collects images at each step of a Pod's life: those that it uses stay, in a container and in a
// volume, also over a change of agents.
func TestImagesInUseStay(t *testing.T) {
	b := newBed(t)
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	ids := map[string]string{} // short names by digest
	for _, n := range []string{"container", "volume", "idle"} {
		img, err := mutate.Config(empty.Image, v1.Config{Env: []string{"NAME=" + n}}) // so that the digests differ
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(host + "/" + n + ":1")
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		ids[digest.String()] = n
	}
	collect := func(when string, want ...string) {
		t.Helper()
		records, err := filepath.Glob(filepath.Join(b.dir, "images", "sha256-*", "image.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if err := os.Chtimes(r, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		removed, err := b.agent.images.Collect(func() bool { return false }, b.agent.imagesInUse)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, id := range removed {
			names = append(names, ids[id])
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("%s: removed %q, want %q", when, names, want)
		}
	}

	pod := serverPod("user")
	c := &pod.Spec.Containers[0]
	c.Image = host + "/container:1"
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "tools", VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: host + "/volume:1"},
	}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "tools", MountPath: "/tools"})
	created := b.create(pod)
	b.await("user", "ready", ready)
	if _, err := b.agent.images.Ensure(t.Context(), host+"/idle:1", "", nil); err != nil {
		t.Fatal(err)
	}
	if removed, err := b.agent.images.Collect(func() bool { return false }, b.agent.imagesInUse); err != nil || len(removed) > 0 {
		t.Errorf("removed although just pulled: %q, %v", removed, err)
	}
	collect("in use", "idle")

	b.agent.Abandon()
	b.start()
	collect("taken over")

	b.setImage("user", host+"/idle:1")
	b.await("user", "swapped", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].Image == host+"/idle:1"
	})
	collect("swapped", "container")
	b.setImage("user", host+"/container:1")
	b.await("user", "swapped back", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].Image == host+"/container:1"
	})

	if err := b.client.CoreV1().Pods("default").Delete(t.Context(), "user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the Pod's files are gone", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "pods", string(created.UID)))
		return os.IsNotExist(err)
	})
	collect("deleted", "container", "idle", "volume")
	if left, err := filepath.Glob(filepath.Join(b.dir, "images", "[st][ham][apg2]*")); err != nil || len(left) > 0 {
		t.Errorf("left in the store: %q, %v", left, err)
	}
}
