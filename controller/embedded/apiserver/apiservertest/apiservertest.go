// Package apiservertest starts the embedded Kubernetes API for tests: the real thing, with the platform's CRDs and the
// garbage collector, in a directory of its own.
package apiservertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"navix.sh/agentbox/controller/embedded/apiserver"
	"navix.sh/agentbox/controller/embedded/collector"
)

// StartForTest starts an API server and returns an administrator's configuration for it. The server is stopped when
// the test ends.
func StartForTest(t testing.TB) *rest.Config {
	t.Helper()
	config, stop, err := start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return config
}

// Main runs the tests of a package with one server for all of them, whose configuration it passes to use. Call it from
// TestMain: os.Exit(apiservertest.Main(m, func(c *rest.Config) { config = c })).
func Main(m *testing.M, use func(*rest.Config)) int {
	dir, err := os.MkdirTemp("", "agentbox-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		var config *rest.Config
		var stop func()
		if config, stop, err = start(dir); err == nil {
			defer stop()
			use(config)
			return m.Run()
		}
	}
	fmt.Fprintln(os.Stderr, "start the API server for the tests:", err)
	return 1
}

func start(dir string) (*rest.Config, func(), error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := apiserver.Start(context.Background(), apiserver.Options{DataDir: dir, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	c, err := collector.New(s.Config, log)
	if err != nil {
		s.Stop()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	return s.Config, func() {
		cancel()
		<-done
		s.Stop()
	}, nil
}
