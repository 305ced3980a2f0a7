package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"navix.sh/agentbox/internal/testplatform"
)

// TestLifeOfThePlatform walks the platform through what a laptop does to it: a start, a power cut with a sandbox
// running, a second start, an orderly end.
func TestLifeOfThePlatform(t *testing.T) {
	p := testplatform.Start(t)
	waitIdle(t, p, 1)

	created := e2b(t, p, http.MethodPost, "/v2/sandboxes", `{"templateID":"default","timeout":600}`, http.StatusCreated)
	id, token := created["sandboxID"].(string), created["envdAccessToken"].(string)
	killed := e2b(t, p, http.MethodPost, "/v2/sandboxes", `{"templateID":"default"}`, http.StatusCreated)["sandboxID"].(string)
	e2b(t, p, http.MethodDelete, "/sandboxes/"+killed, "", http.StatusNoContent)

	p.Kill()
	if len(sandboxProcesses(t, p)) == 0 {
		t.Error("the sandboxes did not survive the controller")
	}
	key := p.Client["AGENTBOX_API_KEY"]
	p.Restart()

	if p.Client["AGENTBOX_API_KEY"] != key {
		t.Error("the restart minted another key")
	}
	again := e2b(t, p, http.MethodGet, "/sandboxes/"+id, "", http.StatusOK)
	if again["envdAccessToken"] != token {
		t.Error("the sandbox has another access token than before the restart")
	}
	if got := health(t, p, id); got != http.StatusNoContent {
		t.Errorf("envd of the running sandbox answers %d through the gateway, want 204", got)
	}
	if record := native(t, p, "/v1/sandboxes/"+killed); !strings.Contains(record, `"status":"Completed"`) {
		t.Errorf("the record of the ended sandbox was lost: %s", record)
	}
	e2b(t, p, http.MethodDelete, "/sandboxes/"+id, "", http.StatusNoContent)
	if got := health(t, p, id); got != http.StatusBadGateway {
		t.Errorf("the killed sandbox answers %d through the gateway, want 502", got)
	}
	waitIdle(t, p, 1)

	p.Stop()
	if left := sandboxProcesses(t, p); len(left) > 0 {
		t.Errorf("left running after SIGTERM:\n%s", strings.Join(left, "\n"))
	}
}

// TestOneProcessOwnsADataDirectory: a second controller on the same directory is refused and harms nothing.
func TestOneProcessOwnsADataDirectory(t *testing.T) {
	p := testplatform.Start(t)
	out, err := p.Command("controller", "--listen", "127.0.0.1:0", "--data-dir", p.DataDir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "error:") {
		t.Fatalf("the second controller: %v\n%s", err, out)
	}
	if got := get(t, p, "/readyz", ""); got.StatusCode != http.StatusNoContent {
		t.Errorf("the first controller answers %d on /readyz", got.StatusCode)
	}
}

// TestStandbyLeavesTheKeyAlone: a second controller on the same Kubernetes API waits for the leadership, and the key of
// the one that leads works on.
func TestStandbyLeavesTheKeyAlone(t *testing.T) {
	p := testplatform.Start(t)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := socket.Addr().String()
	if err := socket.Close(); err != nil { // the standby takes it over
		t.Fatal(err)
	}
	standby := p.Command("controller", "--listen", address, "--data-dir", t.TempDir(), "--kubeconfig", p.Client["KUBECONFIG"])
	var log bytes.Buffer
	standby.Stderr = &log
	if err := standby.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = standby.Process.Signal(syscall.SIGTERM)
		if err := standby.Wait(); err != nil {
			t.Errorf("the standby: %v\n%s", err, log.String())
		}
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get("http://" + address + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("the standby answers %s on /readyz", resp.Status)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the standby does not listen: %v", err)
		}
	}
	// It knows no sandboxes, so it must not say that there are none.
	for _, path := range []string{"/e2b/sandboxes", "/v1/sandboxes", "/agent-sandbox/api/data/sandboxes/isome/49983/health"} {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("the standby answers %s on %s", resp.Status, path)
		}
	}
	native(t, p, "/v1/auth/whoami") // with the first one's key
}

func waitIdle(t testing.TB, p *testplatform.Platform, want int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		var page struct {
			Items []struct {
				Status struct {
					IdleReplicas, UnavailableIdleReplicas int
				} `json:"status"`
			} `json:"items"`
		}
		raw := native(t, p, "/v1/envs/default/sandboxpools")
		if err := json.Unmarshal([]byte(raw), &page); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		for _, pool := range page.Items {
			if pool.Status.IdleReplicas-pool.Status.UnavailableIdleReplicas >= want {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %d idle Pods within a minute: %s", want, raw)
		}
		time.Sleep(10 * time.Millisecond) // the list is polled; there is no event to wait for over this route
	}
}

// e2b calls the E2B API and returns the decoded object.
func e2b(t *testing.T, p *testplatform.Platform, method, path, body string, want int) map[string]any {
	t.Helper()
	req, err := http.NewRequest(method, p.Client["E2B_API_URL"]+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", p.Client["E2B_API_KEY"])
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		t.Fatalf("%s %s: %d, want %d (%v): %s", method, path, resp.StatusCode, want, err, raw)
	}
	out := map[string]any{}
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := json.Unmarshal(raw, &out); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
	}
	return out
}

// health asks envd of a sandbox through the gateway.
func health(t *testing.T, p *testplatform.Platform, id string) int {
	t.Helper()
	return get(t, p, "/health", id).StatusCode
}

func get(t *testing.T, p *testplatform.Platform, path, sandbox string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, p.Endpoint()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if sandbox != "" {
		req.Header.Set("E2b-Sandbox-Id", sandbox)
		req.Header.Set("E2b-Sandbox-Port", "49983")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

func native(t testing.TB, p *testplatform.Platform, path string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, p.Endpoint()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("AGENTBOX-API-KEY", p.Client["AGENTBOX_API_KEY"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d (%v): %s", path, resp.StatusCode, err, raw)
	}
	return string(raw)
}

// sandboxProcesses lists the processes that live on this platform's data: their mounts name its directory.
func sandboxProcesses(t *testing.T, p *testplatform.Platform) []string {
	t.Helper()
	var out []string
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		raw, err := os.ReadFile(table)
		if err != nil || !bytes.Contains(raw, []byte(p.DataDir+"/")) {
			continue // gone meanwhile, or another's
		}
		cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(table), "cmdline"))
		out = append(out, filepath.Base(filepath.Dir(table))+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
	}
	return out
}

// TestEnvironmentComesAndGoes creates an environment with a pool, uses it and deletes it, with abx alone.
func TestEnvironmentComesAndGoes(t *testing.T) {
	p := testplatform.Start(t)
	env := file(t, "env.json", `{"name":"demo","templateRef":{"name":"default"},"overrides":{"podCreationImagePolicy":"PoolDefaultImage"}}`)
	pool := file(t, "pool.yaml", "replicas: 2\ninlineResources:\n  requests: {cpu: 100m, memory: 256Mi}\n  limits: {cpu: 100m, memory: 256Mi}\n")
	for range 2 { // twice: a name that was used is free again
		abx(t, p, "create", "envs", "-f", env)
		abx(t, p, "create", "envs", "demo", "pools", "-f", pool, "--wait")
		id := e2b(t, p, http.MethodPost, "/v2/sandboxes", `{"templateID":"demo"}`, http.StatusCreated)["sandboxID"].(string)
		abx(t, p, "delete", "envs", "demo", "--wait", "--timeout", "1m")
		if record := native(t, p, "/v1/sandboxes/"+id); !strings.Contains(record, `"status":"Failed"`) {
			t.Errorf("the sandbox of the deleted environment reads %s", record)
		}
	}
}

// file writes a file for abx to read and returns its path.
func file(t *testing.T, name, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// abx runs the command line as a user of this platform and returns what it printed.
func abx(t testing.TB, p *testplatform.Platform, args ...string) string {
	t.Helper()
	out, err := p.Command("abx", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("abx %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
