package controller

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"navix.sh/agentbox/controller/embedded"
	"navix.sh/agentbox/controller/embedded/apiserver/apiservertest"
	"navix.sh/agentbox/internal/testplatform"
)

// cluster stands for a real one: a Kubernetes API and a node that belong to somebody else, and an account that may do
// what deploy/install.yaml says.
type cluster struct {
	t        *testing.T
	platform *embedded.Platform
	clients  *clientset.Clientset // the administrator's
	rights   *rights
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	// Not t.TempDir: the test's name in it would make the paths of sockets too long.
	dir, err := os.MkdirTemp("", "abx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	p, err := embedded.Start(t.Context(), embedded.Options{DataDir: dir, BinDir: testplatform.Build(t), ClusterID: "local"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	clients, err := clientset.NewForConfig(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t: t, platform: p, clients: clients, rights: readRights(t, "../deploy/install.yaml")}
}

// connect is what a controller in a Pod of the cluster does. Only the way to the Pods is the node's own.
func (c *cluster) connect(_ context.Context, s Settings, _ *slog.Logger) (*kubernetes, error) {
	config := rest.CopyConfig(c.platform.Config)
	config.Wrap(c.rights.wrap)
	kube, err := connectCluster(config, s)
	if err == nil {
		kube.Dial = c.platform.Dial
	}
	return kube, err
}

// pod is a running controller, with files of its own that end with it.
type pod struct {
	c        *cluster
	endpoint string
	key      string
	stop     func()
}

func (c *cluster) run(catalogue string) *pod {
	c.t.Helper()
	dir := c.t.TempDir()
	file := filepath.Join(dir, "catalogue.yaml")
	if err := os.WriteFile(file, []byte(catalogue), 0o600); err != nil {
		c.t.Fatal(err)
	}
	s, err := ParseSettings([]string{"--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"), "--catalogue", file, "--log-level", "warn"}, noEnv, io.Discard)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, w := io.Pipe()
	var logs bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var ended error
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended = run(ctx, s, w, log, c.connect)
		w.Close()
	}()
	p := &pod{c: c, stop: func() {
		cancel()
		<-done
		if ended != nil {
			c.t.Errorf("the controller ended with %v\n%s", ended, logs.String())
		}
		if strings.Contains(strings.ToLower(logs.String()), "forbidden") {
			c.t.Errorf("the controller complains:\n%s", logs.String())
		}
	}}
	line, _ := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "ready" {
		cancel()
		<-done
		c.t.Fatalf("the controller is not ready: %v\n%s", ended, logs.String())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	p.endpoint = words[1]
	secret, err := c.clients.CoreV1().Secrets("agentbox-system").Get(c.t.Context(), adminKeySecret, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	p.key = string(secret.Data[adminKeyName])
	return p
}

// call asks the native API and returns the decoded answer; another one than success fails the test.
func (p *pod) call(method, path, key, body string) map[string]any {
	p.c.t.Helper()
	return p.answer(0, method, path, key, body)
}

// answer is call for an answer of one status; 0 is any success.
func (p *pod) answer(want int, method, path, key, body string) map[string]any {
	p.c.t.Helper()
	resp := p.request(p.c.t.Context(), method, path, key, body)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || (want == 0 && resp.StatusCode/100 != 2) || (want != 0 && resp.StatusCode != want) {
		p.c.t.Fatalf("%s %s: %d (%v): %s", method, path, resp.StatusCode, err, raw)
	}
	out := map[string]any{}
	_ = json.Unmarshal(raw, &out) // some lists are arrays, and some answers empty
	return out
}

func (p *pod) request(ctx context.Context, method, path, key, body string) *http.Response {
	p.c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, p.endpoint+"/v1"+path, strings.NewReader(body))
	if err != nil {
		p.c.t.Fatal(err)
	}
	req.Header.Set("AGENTBOX-API-KEY", key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.c.t.Fatal(err)
	}
	return resp
}

// watch opens a watch and waits for its first bytes.
func (p *pod) watch(path string) {
	p.c.t.Helper()
	ctx, cancel := context.WithTimeout(p.c.t.Context(), time.Minute)
	defer cancel()
	resp := p.request(ctx, http.MethodGet, path+"?watch=true", p.key, "")
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(resp.Body)
		p.c.t.Errorf("watch %s: %d: %s", path, resp.StatusCode, raw)
	}
}

// until repeats a read until it says what is wanted.
func (p *pod) until(what, path string, holds func(map[string]any) bool) {
	p.c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		resp := p.request(p.c.t.Context(), http.MethodGet, path, p.key, "")
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		out := map[string]any{"httpStatus": resp.StatusCode}
		_ = json.Unmarshal(raw, &out)
		if holds(out) {
			return
		}
		if time.Now().After(deadline) {
			p.c.t.Fatalf("%s: %s", what, raw)
		}
	}
}

// untilPool waits until a pool's object has a word in it, or has it no longer.
func (c *cluster) untilPool(name, word string, has bool) {
	c.t.Helper()
	get := c.clients.Discovery().RESTClient().Get().AbsPath("/apis/agents.navix.sh/v1alpha1/namespaces/default/sandboxpools/" + name)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		raw, err := get.DoRaw(c.t.Context())
		if err == nil && bytes.Contains(raw, []byte(word)) == has {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s of pool %s: want %v (%v): %s", word, name, has, err, raw)
		}
	}
}

func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

const quotas = `
instanceTypes:
  - name: small
    baseResources: {requests: {cpu: "1", memory: 1Gi}, limits: {cpu: "1", memory: 1Gi}}
quotas:
  - {id: team, name: team, total: {small: 10}}
`

// TestRightsOfTheAccount lives a platform's life with the rights of deploy/install.yaml: they are enough, and none is
// there that nothing uses.
func TestRightsOfTheAccount(t *testing.T) {
	c := newCluster(t)
	// A namespace that the cluster's owner made for a tenant beforehand is taken over.
	ready := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t-red-ann"}}
	if _, err := c.clients.CoreV1().Namespaces().Create(t.Context(), ready, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := c.run(quotas)
	admin := p.key

	template := p.call("GET", "/admin/sandbox-templates/default", admin, "")
	crd := at(template, "editable.crd").(map[string]any)
	crd["metadata"] = map[string]any{"name": "other"}
	body, err := json.Marshal(map[string]any{"crd": crd})
	if err != nil {
		t.Fatal(err)
	}
	p.call("POST", "/admin/sandbox-templates", admin, string(body))
	p.call("PUT", "/admin/sandbox-templates/other", admin, string(body))
	p.call("GET", "/admin/namespaces", admin, "")
	for _, path := range []string{"/envs", "/sandbox-templates", "/envs/default/sandboxpools", "/envs/default/events", "/quotas", "/volumes"} {
		p.watch(path)
	}
	p.call("GET", "/quotas", admin, "")
	p.call("GET", "/volumes", admin, "")

	issued := p.call("POST", "/admin/api-keys", admin, `{"team":"red","user":"ann"}`)
	p.call("DELETE", "/admin/api-keys/"+issued["keyId"].(string), admin, "")

	// An env with a pull secret, which comes, changes and goes.
	login := func(password string) string {
		return `{"name":"demo","templateRef":{"name":"default"},"mode":"WarmPool","overrides":{"imagePullSecret":{"registries":[{"registry":"r.example.com","username":"u","password":"` + password + `"}]}}}`
	}
	p.call("POST", "/envs", admin, login("one"))
	p.call("PUT", "/envs/demo", admin, login("two"))
	size := `"inlineResources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1Gi"}}`
	p.call("POST", "/envs/demo/sandboxpools", admin, `{`+size+`,"replicas":0}`)
	c.untilPool("demo-1c1gi", "imagePullSecrets", true)
	p.call("PUT", "/envs/demo", admin, `{"name":"demo","templateRef":{"name":"default"},"mode":"WarmPool"}`)
	c.untilPool("demo-1c1gi", "imagePullSecrets", false)
	p.call("PUT", "/envs/demo/sandboxpools/demo-1c1gi", admin, `{`+size+`,"replicas":2}`)
	p.until("two Pods are idle", "/envs/demo/sandboxpools/demo-1c1gi", func(m map[string]any) bool {
		n, _ := at(m, "template.status.idleReplicas").(float64)
		return n == 2
	})
	// Units of an instance type are booked on a quota.
	p.call("POST", "/envs/demo/sandboxpools", admin, `{"instanceType":"small","multiplier":1,"replicas":1,"labels":{"quota.scitix.ai/url":"team"}}`)

	sandbox := p.call("POST", "/sandboxes", admin, `{"poolName":"demo-1c1gi"}`)
	id := at(sandbox, "sandbox.sandboxId").(string)
	p.call("POST", "/sandboxes/"+id+"/exec", admin, `{"command":"true"}`)
	p.call("GET", "/sandboxes/"+id+"/logs", admin, "")

	// A request that waits for a person, and a grant.
	agent := p.call("POST", "/api-keys", admin, `{"mode":"agent"}`)["apiKey"].(string)
	held := p.answer(http.StatusPreconditionRequired, "PUT", "/envs/demo/sandboxpools/demo-1c1gi", agent, `{`+size+`,"replicas":3}`)
	p.call("POST", "/approvals/"+at(held, "detail.approvalId").(string)+"/decision", admin, `{"decision":"approve","scope":"key"}`)
	approvals := p.call("GET", "/approvals?scope=key", admin, "")
	p.call("DELETE", "/approvals/grants/"+at(approvals["grants"].([]any)[0], "id").(string), admin, "")

	// The controller's Pod is replaced. The key is the same, the quotas follow the file, and the sandbox lives.
	p.stop()
	p = c.run("")
	if p.key != admin {
		t.Error("the second start has another key")
	}
	if got := p.call("GET", "/sandboxes/"+id, admin, ""); at(got, "sandbox.status") != "Running" {
		t.Errorf("the sandbox did not survive: %v", got)
	}
	p.call("DELETE", "/sandboxes/"+id, admin, "")
	pools, _ := p.call("GET", "/envs/demo/sandboxpools", admin, "")["items"].([]any)
	p.call("DELETE", "/envs/demo/sandboxpools/demo-1c1gi", admin, "")
	p.until("the pool goes", "/envs/demo/sandboxpools", func(m map[string]any) bool {
		items, _ := m["items"].([]any)
		return len(items) == len(pools)-1
	})
	p.call("DELETE", "/envs/demo", admin, "")
	p.until("the env goes", "/envs/demo", func(m map[string]any) bool { return m["httpStatus"] == 404 })
	p.call("DELETE", "/admin/sandbox-templates/other", admin, "")
	p.stop()

	c.rights.mu.Lock()
	refused := slices.Compact(slices.Sorted(slices.Values(c.rights.refused)))
	c.rights.mu.Unlock()
	if len(refused) > 0 {
		t.Errorf("the account may not:\n%s", strings.Join(refused, "\n"))
	}
	// What this test does not come to.
	rare := []string{
		"list nodes", "list pods", // of a server that cannot stream a list into a watch
		"get pods",     // after a write whose answer was lost
		"patch events", // of what happens again
		// An admission plugin asks for these on behalf of who makes an owner's object.
		"update agents.navix.sh/sandboxenvs/finalizers", "update agents.navix.sh/sandboxpools/finalizers",
	}
	for _, r := range c.rights.neverUsed() {
		if !slices.Contains(rare, r) {
			t.Errorf("the account may %s, and nothing needs it", r)
		}
	}
}

// TestTypesAreMissing: a cluster on which nobody installed the types ends the start with what to do.
func TestTypesAreMissing(t *testing.T) {
	config := apiservertest.StartForTest(t)
	crds, err := apiextensionsv1.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connectCluster(rest.CopyConfig(config), Settings{Namespace: "agentbox-system"}); err != nil {
		t.Fatal(err)
	}
	const name = "sandboxpools.agents.navix.sh"
	if err := crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err = connectCluster(rest.CopyConfig(config), Settings{Namespace: "agentbox-system"})
		if err != nil || time.Now().After(deadline) {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "sandboxpools") || !strings.Contains(err.Error(), "deploy/install.yaml") {
		t.Errorf("the start says %v", err)
	}
}
