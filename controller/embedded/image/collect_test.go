package image

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
)

func TestCollect(t *testing.T) {
	r := newRegistry(t)
	s := newStore(t, t.TempDir())
	ids := map[string]string{}
	for i, n := range []string{"oldest", "held", "pulling", "old", "newer", "fresh"} {
		ids[n] = r.push(t, n+":1", layer(t, file("f", n)))
		if _, err := s.Ensure(t.Context(), r.host+"/"+n+":1", "", nil); err != nil {
			t.Fatal(err)
		}
		if n != "fresh" {
			age(t, s, ids[n], time.Duration(20-i)*time.Hour)
		}
	}
	release, err := s.lock(t.Context(), ids["pulling"])
	if err != nil {
		t.Fatal(err)
	}
	var removed int
	inUse := func() map[string]bool { return map[string]bool{ids["held"]: true} }
	got, err := s.Collect(func() bool { removed++; return removed > 4 }, inUse)
	if want := []string{ids["oldest"], ids["old"]}; err != nil || !slices.Equal(got, want) {
		t.Errorf("removed %q, %v, want %q", got, err, want)
	}
	release()
	got, err = s.Collect(func() bool { return false }, inUse)
	if want := []string{ids["pulling"], ids["newer"]}; err != nil || !slices.Equal(got, want) {
		t.Errorf("then removed %q, %v, want %q", got, err, want)
	}

	// What was removed is pulled again; what is here is not.
	for n, wantTrips := range map[string]bool{"oldest": true, "held": false, "fresh": false} {
		before := r.requests.Load()
		img, err := s.Ensure(t.Context(), r.host+"/"+n+":1", corev1.PullIfNotPresent, nil)
		if err != nil || !s.Use(img) || list(t, img.Tree) != "f="+n {
			t.Errorf("%s: %+v, %v", n, img, err)
		}
		if trips := r.requests.Load() > before; trips != wantTrips {
			t.Errorf("%s: the registry was asked: %v, want %v", n, trips, wantTrips)
		}
	}
}

// TestCollectAfterCrash leaves a removal at each of its steps: the image counts as absent and is pulled again.
func TestCollectAfterCrash(t *testing.T) {
	r := newRegistry(t)
	digest := r.push(t, "app:1", layer(t, file("f", "1")))
	parsed, err := name.ParseReference(r.host + "/app:1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(parsed)
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
		Platform: &v1.Platform{OS: "linux", Architecture: goruntime.GOARCH},
	}})
	ref, err := name.ParseReference(r.host + "/index:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	hash, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	refs := []string{r.host + "/app:1", r.host + "/index@" + hash.String()}
	dir := t.TempDir()
	s := newStore(t, dir)
	pull := func(s *Store) {
		t.Helper()
		for _, ref := range refs {
			img, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent, nil)
			if err != nil || img.ID != digest || list(t, img.Tree) != "f=1" {
				t.Errorf("%s: %+v, %v", ref, img, err)
			}
		}
	}
	pull(s)
	// Killed after the image was taken away, and after some of its files and names were.
	for _, gone := range []string{"", "image.json", filepath.Base(s.imageDir(hash.String()))} {
		if err := os.Rename(s.imageDir(digest), filepath.Join(dir, tmpPrefix+"x")); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{filepath.Join(dir, tmpPrefix+"x", gone), filepath.Join(dir, gone)} {
			if gone != "" {
				if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
		}
		s = newStore(t, dir)
		if left, err := filepath.Glob(filepath.Join(dir, tmpPrefix+"*")); err != nil || len(left) > 0 {
			t.Errorf("left by the crash: %q, %v", left, err)
		}
		pull(s)
	}
	age(t, s, digest, time.Hour)
	if got, err := s.Collect(func() bool { return false }, func() map[string]bool { return nil }); err != nil || !slices.Equal(got, []string{digest}) {
		t.Errorf("removed %q, %v", got, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the store: %v, %v", left, err)
	}
}

func age(t *testing.T, s *Store, id string, by time.Duration) {
	t.Helper()
	if err := os.Chtimes(s.recordPath(id), time.Time{}, time.Now().Add(-by)); err != nil {
		t.Fatal(err)
	}
}
