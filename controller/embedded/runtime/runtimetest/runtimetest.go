// Package runtimetest gives tests a sandbox runtime on this machine.
package runtimetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
	"navix.sh/agentbox/controller/embedded/runtime/oci"
)

// LauncherVariable names a launcher that is built already, for runs as a user who cannot build.
const LauncherVariable = "AGENTBOX_TEST_LAUNCHER"

var build = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(LauncherVariable); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "agentbox-launcher-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "sandbox-init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "navix.sh/agentbox/cmd/sandbox-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &buildError{string(out), err}
	}
	return path, os.Chmod(dir, 0o755)
})

type buildError struct {
	output string
	err    error
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.output }

// Main runs the tests of a package that uses Launcher, fails when they leave goroutines behind, and deletes the built
// launcher.
func Main(m *testing.M) int {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	Clean()
	return code
}

// Clean deletes the launcher that Launcher has built.
func Clean() {
	if path, err := build(); err == nil && os.Getenv(LauncherVariable) == "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
}

// Launcher builds sandbox-init, once per test binary, and returns its path.
func Launcher(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatalf("build the sandbox launcher: %v", err)
	}
	return path
}

// Node is a runtime with a place for its files.
type Node struct {
	Runtime *namespaces.Runtime
	Images  *image.Store
	Dir     string
	// OwnKernel says that a container's system calls do not reach the machine's kernel.
	OwnKernel bool
}

// New starts a runtime in a temporary directory. Everything is removed when the test ends.
func New(t testing.TB) *Node {
	t.Helper()
	dir := t.TempDir()
	r, err := namespaces.New(namespaces.Options{Launcher: Launcher(t), Name: "agentbox-test-" + Random()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	images, err := image.NewStore(filepath.Join(dir, "images"), r.IDs(), filepath.Join(dir, "envd"))
	if err != nil {
		t.Fatal(err)
	}
	return &Node{Runtime: r, Images: images, Dir: dir}
}

// Each runs a test with every runtime that there is. Those that the machine does not have, or that do not work on it,
// are named as skipped.
func Each(t *testing.T, test func(t *testing.T, n *Node)) {
	t.Helper()
	for _, name := range append([]string{namespaces.Name}, oci.Names...) {
		t.Run(name, func(t *testing.T) {
			n := New(t)
			if name != namespaces.Name {
				o, err := oci.Find(t.Context(), name)
				if err != nil {
					t.Skipf("%s: %v", name, err)
				}
				n.Runtime, n.OwnKernel = n.Runtime.With(o), o.OwnKernel()
				if err := n.Runtime.Probe(t.Context(), filepath.Join(n.Dir, Random())); err != nil {
					t.Skipf("%s does not work on this machine: %v", name, err)
				}
			}
			t.Log(n.Runtime.Describe())
			test(t, n)
		})
	}
}

// Random returns a short name that no other test uses.
func Random() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Pod starts a sandbox that is stopped when the test ends.
func (n *Node) Pod(t testing.TB) runtime.Pod {
	t.Helper()
	uid := Random()
	p, err := n.Runtime.StartPod(t.Context(), runtime.PodConfig{
		UID: uid, Hostname: "box", Dir: filepath.Join(n.Dir, "pods", uid), Address: "10.213.0.2", LoopbackOnly: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Host describes a container on the built-in image that runs a shell script as user ("root" or image.UserName).
func (n *Node) Host(t testing.TB, user, script string) runtime.ContainerConfig {
	t.Helper()
	img, err := n.Images.Ensure(t.Context(), image.Host, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	id, home, err := img.LookupUser(user)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.ContainerConfig{
		ID: Random(), Name: "main", Root: runtime.Root{Tree: img.Tree, Machine: img.Machine},
		Args: []string{"/bin/sh", "-c", script}, Env: append(img.Config.Env, "HOME="+home), Cwd: home,
		User: id, Capabilities: namespaces.DefaultCapabilities,
		Limits: runtime.Limits{MemoryBytes: 256 << 20, CPUMillis: 2000, CPUShares: 1024, Processes: 256},
	}
}

// Run runs a script to its end and returns its output and how it ended.
func (n *Node) Run(t testing.TB, p runtime.Pod, c runtime.ContainerConfig) (string, runtime.ContainerState) {
	t.Helper()
	if err := p.Start(t.Context(), c); err != nil {
		t.Fatalf("start: %v", err)
	}
	for {
		select {
		case s := <-p.Exits():
			if s.ID != c.ID {
				continue
			}
			return Output(t, p, c.ID), s
		case <-p.Done():
			t.Fatal("the sandbox has gone")
		case <-t.Context().Done():
			t.Fatal("the test has ended")
		}
	}
}

// Output returns what a container has written so far.
func Output(t testing.TB, p runtime.Pod, id string) string {
	t.Helper()
	data, err := os.ReadFile(p.LogFiles(id)[0])
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if f := strings.SplitN(line, " ", 4); len(f) == 4 {
			text.WriteString(f[3] + "\n")
		}
	}
	return text.String()
}
