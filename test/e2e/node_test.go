package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/internal/testplatform"
)

// TestImageSwap claims sandboxes of images other than the environment's: the image comes from a registry, the Pod
// stays, and afterwards the environment's own image serves again.
func TestImageSwap(t *testing.T) {
	host := serveImage(t, "team/app:1", map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
		"etc/group":  "root:x:0:\nuser:x:1000:\n",
		"marker":     "of the other image",
	})
	p := testplatform.Start(t)
	abx(t, p, "create", "envs", "-f", file(t, "env.json", `{"name":"swap","templateRef":{"name":"default"},"overrides":{"podCreationImagePolicy":"PoolDefaultImage"}}`))
	abx(t, p, "create", "envs", "swap", "pools", "-f", file(t, "pool.yaml", "replicas: 1\ninlineResources:\n  requests: {cpu: 100m, memory: 256Mi}\n  limits: {cpu: 100m, memory: 256Mi}\n"), "--wait")
	pod := onlyPod(t, p, "swap")

	claim := func(image string) (id, token string) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"templateID": "swap" + image, "timeout": 600})
		if err != nil {
			t.Fatal(err)
		}
		created := e2b(t, p, http.MethodPost, "/v2/sandboxes", string(body), http.StatusCreated)
		return created["sandboxID"].(string), created["envdAccessToken"].(string)
	}
	kill := func(id string) {
		t.Helper()
		e2b(t, p, http.MethodDelete, "/sandboxes/"+id, "", http.StatusNoContent)
	}
	same := func(when string) {
		t.Helper()
		if now := onlyPod(t, p, "swap"); now != pod {
			t.Errorf("%s the Pod is %s, and it was %s", when, now, pod)
		}
	}

	// Twice: the second time the image is on the node.
	for range 2 {
		id, token := claim("//" + host + "/team/app:1")
		same("after the swap")
		if status, body := readFile(t, p, id, token, "/marker"); status != http.StatusOK || body != "of the other image" {
			t.Errorf("/marker of the swapped image: %d %q", status, body)
		}
		if record := native(t, p, "/v1/sandboxes/"+id); !strings.Contains(record, host+"/team/app:1") {
			t.Errorf("the sandbox does not name its image: %s", record)
		}
		kill(id)
		id, token = claim("")
		same("after the reset")
		if status, body := readFile(t, p, id, token, "/marker"); status != http.StatusNotFound {
			t.Errorf("/marker of the environment's own image: %d %q", status, body)
		}
		kill(id)
	}

	for image, want := range map[string]string{
		host + "/team/absent:1": "manifests/1: NAME_UNKNOWN",
		"127.0.0.1:1/app":       "connect: connection refused",
	} {
		failed := e2b(t, p, http.MethodPost, "/v2/sandboxes", `{"templateID":"swap//`+image+`"}`, http.StatusInternalServerError)
		if message, _ := failed["message"].(string); !strings.Contains(message, "ErrImagePull: ") || !strings.Contains(message, want) {
			t.Errorf("claim of %s: %v, want ErrImagePull and the registry's answer: %s", image, failed, want)
		}
		id, token := claim("")
		if status, _ := readFile(t, p, id, token, "/etc/passwd"); status != http.StatusOK {
			t.Errorf("/etc/passwd of the environment's own image after a failed pull: %d", status)
		}
		kill(id)
	}
}

// TestEvictedSandbox writes more into a sandbox than its environment allows: its record says so, and its pool goes on.
func TestEvictedSandbox(t *testing.T) {
	p := testplatform.Start(t)
	abx(t, p, "create", "envs", "-f", file(t, "env.json", `{"name":"small","templateRef":{"name":"default"},"overrides":{"podCreationImagePolicy":"PoolDefaultImage"}}`))
	abx(t, p, "create", "envs", "small", "pools", "-f", file(t, "pool.yaml", "replicas: 1\ninlineResources:\n  requests: {cpu: 100m, memory: 256Mi}\n  limits: {cpu: 100m, memory: 256Mi, ephemeral-storage: 4M}\n"), "--wait")
	created := e2b(t, p, http.MethodPost, "/v2/sandboxes", `{"templateID":"small","timeout":600}`, http.StatusCreated)
	id, token := created["sandboxID"].(string), created["envdAccessToken"].(string)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Endpoint()+"/files?username=user&path=big", bytes.NewReader(make([]byte, 8<<20)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("E2b-Sandbox-Id", id)
	req.Header.Set("E2b-Sandbox-Port", "49983")
	req.Header.Set("X-Access-Token", token)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := http.DefaultClient.Do(req)
	if err == nil { // the sandbox may be gone before it answers
		resp.Body.Close()
	}
	var record string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // records are polled; there is no event
		if record = native(t, p, "/v1/sandboxes/"+id); strings.Contains(record, `"status":"Failed"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sandbox goes on: %s", record)
		}
	}
	for _, want := range []string{"Evicted", "the container sandbox has written ", "its limit of ephemeral-storage is 4M"} {
		if !strings.Contains(record, want) {
			t.Errorf("the record lacks %q: %s", want, record)
		}
	}
	e2b(t, p, http.MethodPost, "/v2/sandboxes", `{"templateID":"small"}`, http.StatusCreated)
}

// serveImage starts a registry on loopback with one image of the files, and returns the registry's host and port.
func serveImage(t *testing.T, ref string, files map[string]string) string {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for path, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := name.ParseReference(host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(parsed, img); err != nil {
		t.Fatal(err)
	}
	return host
}

// onlyPod returns the UID of the one Pod of an environment.
func onlyPod(t *testing.T, p *testplatform.Platform, env string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.Client["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelEnv + "=" + env})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("the environment %s has %d Pods (%v), want one", env, len(pods.Items), err)
	}
	return string(pods.Items[0].UID)
}

// readFile reads a file of a sandbox through the gateway.
func readFile(t *testing.T, p *testplatform.Platform, id, token, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Endpoint()+"/files?username=root&path="+url.QueryEscape(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("E2b-Sandbox-Id", id)
	req.Header.Set("E2b-Sandbox-Port", "49983")
	req.Header.Set("X-Access-Token", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
