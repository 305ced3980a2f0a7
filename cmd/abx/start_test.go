package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"navix.sh/agentbox/internal/stub"
)

// BenchmarkStart measures whole processes: milliseconds of processor time, and how
// often that is what an empty cobra program takes in the same run. kubectl is
// measured beside it where it is installed.
func BenchmarkStart(b *testing.B) {
	abx, empty := build(b, "."), build(b, "./testdata/emptycobra")
	server, err := stub.New()
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	env := append(os.Environ(), "HOME="+b.TempDir(), "AGENTBOX_CLUSTER_API="+server.URL, "AGENTBOX_API_KEY="+stub.Key)
	baseline := cpu(b, env, empty)
	measure := func(name, program string, args ...string) {
		b.Run(name, func(b *testing.B) {
			var total time.Duration
			for b.Loop() {
				total += run(b, env, program, args...)
			}
			each := float64(total) / float64(b.N)
			b.ReportMetric(each/1e6, "cpu-ms/op")
			b.ReportMetric(each/float64(baseline), "x-cobra")
		})
	}
	measure("empty-cobra", empty)
	measure("help", abx, "--help")
	measure("envs-help", abx, "create", "envs", "--help")
	measure("schema", abx, "create", "envs", "--schema")
	measure("agent-context", abx, "agent-context")
	measure("completion", abx, "__complete", "envs", "--filter", "mo")
	measure("list", abx, "envs")
	if kubectl, err := exec.LookPath("kubectl"); err == nil {
		measure("kubectl-help", kubectl, "get", "--help")
	}
}

// cpu is the least processor time of several runs.
func cpu(b *testing.B, env []string, program string) time.Duration {
	best := time.Hour
	for range 20 {
		best = min(best, run(b, env, program))
	}
	return best
}

// run runs a program once and returns the processor time that it took.
func run(b *testing.B, env []string, program string, args ...string) time.Duration {
	cmd := exec.Command(program, args...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
