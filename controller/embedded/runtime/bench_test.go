package runtime_test

import (
	"syscall"
	"testing"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

// BenchmarkContainer starts a container on the host image, waits for its end and removes it.
func BenchmarkContainer(b *testing.B) {
	n := runtimetest.New(b)
	p := n.Pod(b)
	c := n.Host(b, "root", "")
	c.Args = []string{"/bin/true"}
	for b.Loop() {
		c.ID = runtimetest.Random()
		n.Run(b, p, c)
		if err := p.Remove(b.Context(), c.ID); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPod starts and stops an empty sandbox.
func BenchmarkPod(b *testing.B) {
	n := runtimetest.New(b)
	for b.Loop() {
		uid := runtimetest.Random()
		p, err := n.Runtime.StartPod(b.Context(), runtime.PodConfig{UID: uid, Hostname: "box", Dir: b.TempDir() + "/" + uid, Address: "10.213.0.2", LoopbackOnly: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKill is the path of a reset in the runtime: kill a running container and start the next one.
func BenchmarkKill(b *testing.B) {
	n := runtimetest.New(b)
	p := n.Pod(b)
	c := n.Host(b, "root", "exec sleep 1000")
	if err := p.Start(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	defer runtimetest.MeasureCPU(b, p.PID()).Report()
	for b.Loop() {
		if err := p.Signal(b.Context(), c.ID, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		<-p.Exits()
		if err := p.Remove(b.Context(), c.ID); err != nil {
			b.Fatal(err)
		}
		c.ID = runtimetest.Random()
		if err := p.Start(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
