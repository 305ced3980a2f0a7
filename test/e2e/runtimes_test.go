package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"navix.sh/agentbox/controller/embedded/runtime/oci"
	"navix.sh/agentbox/internal/testplatform"
)

// TestRuntimes claims, uses and resets a sandbox with every OCI runtime of the machine, and kills the controller in
// between.
func TestRuntimes(t *testing.T) {
	for _, name := range oci.Names {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skipf("%s: OCI runtimes are for root", name)
			}
			if _, err := oci.Find(t.Context(), name); err != nil {
				t.Skipf("%s: %v", name, err)
			}
			testRuntime(t, name)
		})
	}
}

func testRuntime(t *testing.T, name string) {
	p := testplatform.Start(t, "--runtime", name)
	if !strings.Contains(p.ReadyLine, `runtime="`+name+" ") {
		t.Errorf("the ready line does not name the runtime: %s", p.ReadyLine)
	}
	abx(t, p, "create", "envs", "-f", file(t, "env.json", `{"name":"one","templateRef":{"name":"default"},"overrides":{"podCreationImagePolicy":"PoolDefaultImage"}}`))
	abx(t, p, "create", "envs", "one", "pools", "-f", file(t, "pool.yaml", "replicas: 1\ninlineResources:\n  requests: {cpu: 100m, memory: 256Mi}\n  limits: {cpu: 100m, memory: 256Mi}\n"), "--wait")
	pod := onlyPod(t, p, "one")
	claim := func() benchSandbox {
		t.Helper()
		created := e2b(t, p, http.MethodPost, "/v2/sandboxes", `{"templateID":"one","timeout":600}`, http.StatusCreated)
		return benchSandbox{created["sandboxID"].(string), created["envdAccessToken"].(string)}
	}
	const trace = "/home/user/trace"

	sb := claim()
	runShell(t, p, sb, "echo secret > "+trace+"; (setsid sleep 12345 >/dev/null 2>&1 &); echo hello", "hello\n")
	p.Kill()
	p.Restart()
	if status, body := readFile(t, p, sb.ID, sb.Token, trace); status != http.StatusOK || body != "secret\n" {
		t.Errorf("after the controller was killed the sandbox answers %d %q", status, body)
	}
	e2b(t, p, http.MethodDelete, "/sandboxes/"+sb.ID, "", http.StatusNoContent)

	sb = claim()
	if now := onlyPod(t, p, "one"); now != pod {
		t.Errorf("the Pod was not reset but replaced: %s, it was %s", now, pod)
	}
	if status, body := readFile(t, p, sb.ID, sb.Token, trace); status != http.StatusNotFound {
		t.Errorf("the next sandbox finds the file of the one before: %d %q", status, body)
	}
	runShell(t, p, sb, "ps ax | grep -c '[s]leep 12345'", "0\n")
	e2b(t, p, http.MethodDelete, "/sandboxes/"+sb.ID, "", http.StatusNoContent)

	p.Stop()
	if left := sandboxProcesses(t, p); len(left) > 0 {
		t.Errorf("left running after SIGTERM:\n%s", strings.Join(left, "\n"))
	}
}
