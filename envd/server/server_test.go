package server

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"navix.sh/agentbox/envd/filesystem"
	"navix.sh/agentbox/envd/metrics"
	"navix.sh/agentbox/envd/process"
	"navix.sh/agentbox/envd/reaper"
	spec "navix.sh/agentbox/envd/spec/process"
	"navix.sh/agentbox/envd/spec/process/processconnect"
	"navix.sh/agentbox/envd/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs the whole server in this process, where goleak sees what it leaves. The returned function shuts it down.
func serve(t *testing.T) (url string, shutdown func()) {
	t.Helper()
	children := reaper.Start(nil)
	processes := process.NewManager(children)
	shared := state.New(false)
	directories := filesystem.NewService(shared)
	handler := Handler(Config{
		State:      shared,
		Processes:  process.NewService(processes, shared, state.TemplateEnv(nil, false)),
		Filesystem: directories,
		Metrics:    metrics.NewCollector(),
		CAFile:     filepath.Join(t.TempDir(), "ca.crt"),
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- Serve(ctx, New(handler), []net.Listener{listener}, func() {
			ending, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			processes.Close(ending)
		})
	}()
	return "http://" + listener.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		directories.Close()
		children.Stop()
	}
}

// TestClientsThatLeaveAtAnyPoint breaks streams off after any number of messages, and demands that every stream that is
// read to its end has one end event, and that nothing is left running.
func TestClientsThatLeaveAtAnyPoint(t *testing.T) {
	url, shutdown := serve(t)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := processconnect.NewProcessClient(&http.Client{Transport: transport}, url)
	var all sync.WaitGroup
	for patience := range 24 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			stream, err := client.Start(ctx, connect.NewRequest(&spec.StartRequest{
				Process: &spec.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; echo $i >&2; done; exit 3"}},
			}))
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			ends, left := 0, false
			for n := 0; stream.Receive(); n++ {
				if end := stream.Msg().GetEvent().GetEnd(); end != nil {
					ends++
					if end.GetExitCode() != 3 {
						t.Errorf("exit code %d", end.GetExitCode())
					}
				}
				if n == patience {
					cancel()
					left = true
				}
			}
			if !left && (ends != 1 || stream.Err() != nil) {
				t.Errorf("%d ends, %v", ends, stream.Err())
			}
		})
	}
	all.Wait()
	shutdown()
}

// TestShutdownWithAStuckClient has a client that never reads what its endless process prints.
func TestShutdownWithAStuckClient(t *testing.T) {
	url, shutdown := serve(t)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := processconnect.NewProcessClient(&http.Client{Transport: transport}, url)
	stream, err := client.Start(t.Context(), connect.NewRequest(&spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "yes"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	shutdown()
}
