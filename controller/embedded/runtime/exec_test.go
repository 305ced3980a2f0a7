package runtime_test

import (
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

// TestExec runs commands in a running container, with no more rights than the container has.
func TestExec(t *testing.T) { runtimetest.Each(t, testExec) }

func testExec(t *testing.T, n *runtimetest.Node) {
	p := n.Pod(t)
	c := n.Host(t, image.UserName, "echo here > /tmp/here; exec sleep 1000")
	if err := p.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	limit := 10 * time.Second
	run := func(script string) (int, string) {
		code, out, err := p.Exec(t.Context(), runtime.ExecConfig{
			ID: c.ID, Name: c.Name, Args: []string{"sh", "-c", script}, Env: c.Env, User: c.User,
			Capabilities: c.Capabilities, Timeout: limit,
		})
		if err != nil {
			t.Fatal(err)
		}
		return code, string(out)
	}
	if code, out := run("cat /tmp/here; exit 5"); code != 5 || out != "here\n" {
		t.Errorf("exit code %d, output %q", code, out)
	}
	_, out := run("grep -E 'CapEff|CapPrm|NoNewPrivs|Seccomp:' /proc/self/status; ps ax | grep -c sleep")
	wanted := []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"}
	if !n.OwnKernel {
		wanted = append(wanted, "NoNewPrivs:\t1", "Seccomp:\t2")
	}
	for _, want := range wanted {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	limit = time.Second
	if code, _ := run("sleep 1000 & sleep 1000"); code != 137 {
		t.Errorf("a command that takes too long ends with %d", code)
	}
	if _, _, err := p.Exec(t.Context(), runtime.ExecConfig{ID: "absent", Args: []string{"true"}}); err == nil {
		t.Error("a command ran in a container that does not exist")
	}
}
