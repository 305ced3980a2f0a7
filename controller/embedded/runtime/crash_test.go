package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

// agentVariable makes the test binary an agent that starts a Pod: "<launcher> <name> <Pod's directory> <step>".
const agentVariable = "AGENTBOX_TEST_AGENT"

func crashConfig(name, dir string) runtime.PodConfig {
	return runtime.PodConfig{UID: "crash", Hostname: name, Dir: dir, Address: "10.213.0.2", LoopbackOnly: true}
}

// agentMain starts a Pod in a process of its own, which a test kills.
func agentMain(args string) int {
	f := strings.Split(args, "\n")
	r, err := namespaces.New(namespaces.Options{Launcher: f[0], Name: f[1]})
	if err == nil {
		var p runtime.Pod
		if p, err = r.StartPod(context.Background(), crashConfig(f[1], f[2])); err == nil && f[3] == "persistent" {
			err = p.Persist()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("started")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	return 0
}

// launchers are the first processes of the Pods with a host name.
func launchers(t *testing.T, hostname string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if data, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(data), "sandbox-init\x00pod\x00"+hostname+"\x00") {
			pids = append(pids, path)
		}
	}
	return pids
}

// alive reports whether a process of launchers may still hold its socket. Its command line goes first, then its first
// thread, and its descriptors with the last one.
func alive(cmdline string) bool {
	stat, err := os.ReadFile(filepath.Join(filepath.Dir(cmdline), "stat"))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // of proc(5), from the third on
	const state, threads = 0, 17
	return fields[state] != "Z" || fields[threads] != "1"
}

// TestKilledAgent kills an agent at every step of a Pod's start, and shows that the Pod ends with it as long as the next
// one could not take it over.
func TestKilledAgent(t *testing.T) {
	for _, step := range []string{"launched", "started", "persistent"} {
		t.Run(step, func(t *testing.T) {
			name, dir := "agentbox-test-"+runtimetest.Random(), filepath.Join(t.TempDir(), "pod")
			if step == "launched" { // the agent does not get beyond the record
				if err := errors.Join(os.Mkdir(dir, 0o700), unix.Mkfifo(filepath.Join(dir, "process.json.new"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			agent := exec.Command(os.Args[0])
			agent.Env = append(os.Environ(), agentVariable+"="+strings.Join([]string{runtimetest.Launcher(t), name, dir, step}, "\n"))
			agent.Stderr = os.Stderr
			stdin, err := agent.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			stdout, err := agent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			if step == "launched" {
				waitFor(t, "the launcher runs", func() bool { return len(launchers(t, name)) == 1 })
				time.Sleep(50 * time.Millisecond) // that it waits for the agent shows in nothing
			} else if _, err := io.ReadFull(stdout, make([]byte, len("started"))); err != nil {
				t.Fatalf("the agent does not start a Pod: %v", err)
			}
			running := launchers(t, name)
			if err := agent.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = agent.Wait()

			r, err := namespaces.New(namespaces.Options{Launcher: runtimetest.Launcher(t), Name: name})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if step != "persistent" {
				waitFor(t, "the launcher has ended", func() bool { return !slices.ContainsFunc(running, alive) })
			}
			p, err := r.AdoptPod(t.Context(), crashConfig(name, dir))
			if step == "persistent" {
				if err != nil {
					t.Fatalf("the Pod is not taken over: %v", err)
				}
				if err := p.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, runtime.ErrGone) {
				t.Errorf("the Pod is taken over: %v", err)
			}
			if err := r.Leftovers(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if left := launchers(t, name); len(left) > 0 {
				t.Errorf("%s are left", left)
			}
		})
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("never: %s", what)
		}
	}
}
