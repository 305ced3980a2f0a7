package runtime_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

// TestCountersAreApart has one sandbox use up what the kernel counts for a user: another gets as much all the same.
func TestCountersAreApart(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "exhaust"), "./testdata/exhaust")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if prebuilt := os.Getenv("AGENTBOX_TEST_EXHAUST"); prebuilt != "" {
		cmd = exec.CommandContext(t.Context(), "cp", prebuilt, filepath.Join(dir, "exhaust"))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	asBoth(t, func(t *testing.T, n *runtimetest.Node, user string) {
		if n.OwnKernel {
			t.Skip("a kernel of its own counts for this sandbox alone")
		}
		var first [2]int
		for i := range 3 {
			p := n.Pod(t)
			c := n.Host(t, user, "")
			c.Args = []string{"/exhaust/exhaust"}
			c.Mounts = []runtime.Mount{{Source: dir, Target: "/exhaust", ReadOnly: true}}
			if err := p.Start(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			var got [2]int
			if _, err := fmt.Sscan(firstLine(t, p, c.ID), &got[0], &got[1]); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				t.Logf("a sandbox gets %d message queues and %d pending signals", got[0], got[1])
				first = got
			}
			// A signal more or less is pending for another reason.
			if got[0] < 1 || got[0] != first[0] || got[1] < 1000 || got[1] < first[1]-10 {
				t.Errorf("sandbox %d gets %v, and the first got %v", i+1, got, first)
			}
		}
	})
}

// firstLine waits until a container has written a line.
func firstLine(t *testing.T, p runtime.Pod, id string) string {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(p.LogFiles(id)[0]); err != nil {
		t.Fatal(err)
	}
	for {
		if out := runtimetest.Output(t, p, id); out != "" {
			return out
		}
		select {
		case <-w.Events:
		case s := <-p.Exits():
			t.Fatalf("it has ended: %+v, %s", s, runtimetest.Output(t, p, id))
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		}
	}
}
