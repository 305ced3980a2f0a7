package image

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/embedded/runtime"
)

// testRegistry is a registry on loopback that counts requests, and asks for a password when it has one.
type testRegistry struct {
	host     string
	requests atomic.Int64
	password string
}

func newRegistry(t *testing.T) *testRegistry {
	t.Helper()
	r := &testRegistry{}
	serve := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		if r.password != "" {
			if _, p, _ := req.BasicAuth(); p != r.password {
				w.Header().Set("WWW-Authenticate", "Basic")
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprint(w, `{"errors":[{"code":"UNAUTHORIZED","message":"show me your key"}]}`)
				return
			}
		}
		serve.ServeHTTP(w, req)
	}))
	t.Cleanup(s.Close)
	r.host = strings.TrimPrefix(s.URL, "http://")
	return r
}

func layer(t *testing.T, headers ...tar.Header) v1.Layer {
	t.Helper()
	data := archive(t, headers...)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// push stores an image and returns its digest.
func (r *testRegistry) push(t *testing.T, ref string, layers ...v1.Layer) string {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.Config(img, v1.Config{
		Entrypoint: []string{"/entry"}, Cmd: []string{"arg"}, Env: []string{"A=b"}, WorkingDir: "/srv/app", User: "me",
	}); err != nil {
		t.Fatal(err)
	}
	parsed, err := name.ParseReference(r.host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(parsed, img); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func newStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := NewStore(dir, runtime.IDs{Size: 1}, filepath.Join(dir, "no-envd"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPull(t *testing.T) {
	r := newRegistry(t)
	digest := r.push(t, "team/app:1", layer(t, file("etc/passwd", "me:x:7:8::/home/me:/bin/sh\n"), file("old", "1")), layer(t, file(".wh.old", ""), file("new", "2")))
	dir := t.TempDir()
	s := newStore(t, dir)
	img, err := s.Ensure(t.Context(), r.host+"/team/app:1", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := list(t, img.Tree); !strings.HasSuffix(got, " new=2") || strings.Contains(got, "old") {
		t.Errorf("the tree is %q", got)
	}
	if img.ID != digest || img.Config.Entrypoint[0] != "/entry" || img.Config.WorkingDir != "/srv/app" || img.Config.Env[0] != "A=b" {
		t.Errorf("the image is %+v", img)
	}
	if u, home, err := img.LookupUser(img.Config.User); err != nil || u.UID != 7 || u.GID != 8 || home != "/home/me" {
		t.Errorf("the user is %+v, home %q, %v", u, home, err)
	}

	// What is here is not asked for again: by tag, by digest, and after a restart.
	before := r.requests.Load()
	for _, store := range []*Store{s, newStore(t, dir)} {
		for _, ref := range []string{"/team/app:1", "/team/app@" + digest} {
			if img, err := store.Ensure(t.Context(), r.host+ref, corev1.PullIfNotPresent, nil); err != nil || img.ID != digest {
				t.Errorf("%s: %+v, %v", ref, img, err)
			}
		}
	}
	if n := r.requests.Load() - before; n != 0 {
		t.Errorf("%d requests for an image that is here", n)
	}

	// A tag that moves is noticed with Always, and the registry's content counts.
	next := r.push(t, "team/app:1", layer(t, file("next", "3")))
	if img, err := s.Ensure(t.Context(), r.host+"/team/app:1", corev1.PullAlways, nil); err != nil || img.ID != next || list(t, img.Tree) != "next=3" {
		t.Errorf("after the tag has moved: %+v, %v", img, err)
	}
}

func TestPullErrors(t *testing.T) {
	r := newRegistry(t)
	r.push(t, "bad:1", layer(t, file("ok", "1")), layer(t, file("../../escape", "x")))
	s := newStore(t, t.TempDir())
	for ref, want := range map[string]struct{ reason, says string }{
		r.host + "/absent:1": {ReasonPull, "NAME_UNKNOWN"},
		r.host + "/bad:1":    {ReasonPull, `".."`},
		"UPPER":              {ReasonInvalidName, "UPPER"},
		"127.0.0.1:1/app:1":  {ReasonPull, "refused"},
		"agentbox.local/x":   {ReasonInvalidName, Host},
	} {
		_, err := s.Ensure(t.Context(), ref, "", nil)
		var e *Error
		if !errors.As(err, &e) || e.Reason != want.reason || !strings.Contains(e.Error(), want.says) {
			t.Errorf("%s: %v, want %s with %q", ref, err, want.reason, want.says)
		}
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("failed pulls leave %v, %v", entries, err)
	}
}

func TestPullSecrets(t *testing.T) {
	r := newRegistry(t)
	digest := r.push(t, "private:1", layer(t, file("f", "1")))
	r.password = "hunter2"
	s := newStore(t, t.TempDir())
	ref := r.host + "/private:1"
	if _, err := s.Ensure(t.Context(), ref, "", nil); err == nil || !strings.Contains(err.Error(), "show me your key") {
		t.Errorf("without a secret: %v", err)
	}
	auth := base64.StdEncoding.EncodeToString([]byte("me:hunter2"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull"}, Data: map[string][]byte{
		corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"http://%s/v1/":{"auth":%q}}}`, r.host, auth),
	}}
	keys, err := Keychain([]*corev1.Secret{secret})
	if err != nil {
		t.Fatal(err)
	}
	if img, err := s.Ensure(t.Context(), ref, "", keys); err != nil || img.ID != digest {
		t.Errorf("with the secret: %+v, %v", img, err)
	}
	for _, broken := range []*corev1.Secret{{}, {Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("hunter2")}}} {
		if _, err := Keychain([]*corev1.Secret{broken}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a broken secret: %v", err)
		}
	}
}

// TestPullOnce asks for one image from many sides at once.
func TestPullOnce(t *testing.T) {
	r := newRegistry(t)
	digest := r.push(t, "app:1", layer(t, file("f", "1")))
	s := newStore(t, t.TempDir())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if img, err := s.Ensure(t.Context(), r.host+"/app:1", "", nil); err != nil || img.ID != digest {
				t.Errorf("%+v, %v", img, err)
			}
		})
	}
	wg.Wait()
	if len(s.pulls) > 0 {
		t.Errorf("%d locks are left", len(s.pulls))
	}
}

func TestRegistryKey(t *testing.T) {
	for in, want := range map[string]string{
		"https://index.docker.io/v1/": "index.docker.io", "docker.io": "index.docker.io", "ghcr.io": "ghcr.io",
		"http://127.0.0.1:5000/v2/": "127.0.0.1:5000", "ghcr.io/team": "ghcr.io/team",
	} {
		if got := registryKey(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
