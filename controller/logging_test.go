package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"navix.sh/agentbox/controller/embedded/apiserver/apiservertest"
)

// TestBodiesAreNotLogged: client-go writes bodies at verbosity 8 and above.
func TestBodiesAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	log, err := newLogger(Settings{LogLevel: "debug", LogFormat: "text"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	library := logr.FromSlogHandler(quiet{log.Handler()})
	library.V(4).Info("cache is in step")
	for v := 5; v < 11; v++ {
		if library.V(v).Enabled() {
			t.Errorf("verbosity %d is on", v)
		}
		library.V(v).Info("Response Body", "body", "secret")
	}
	if got := out.String(); !strings.Contains(got, "in step") || strings.Contains(got, "secret") {
		t.Error(got)
	}
}

// TestCleanStopIsQuiet stops a manager that leads, and wants nobody to be warned.
func TestCleanStopIsQuiet(t *testing.T) {
	config := apiservertest.StartForTest(t)
	var logs bytes.Buffer
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Logger:                        logr.FromSlogHandler(quiet{slog.NewTextHandler(&logs, nil)}),
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "test",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	select {
	case <-mgr.Elected():
	case err := <-done:
		t.Fatalf("the manager ended: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := logs.String(); strings.Contains(s, "level=WARN") || strings.Contains(s, "level=ERROR") {
		t.Errorf("a clean stop logs:\n%s", s)
	}
}

func TestOtherErrorsAreWarnings(t *testing.T) {
	var logs bytes.Buffer
	log := logr.FromSlogHandler(quiet{slog.NewTextHandler(&logs, nil)})
	log.Error(errors.New("leader election lost"), "something else")
	log.Error(errors.New("no route to host"), "error received after stop sequence was engaged")
	if n := strings.Count(logs.String(), "level=WARN"); n != 2 {
		t.Errorf("%d warnings, want 2:\n%s", n, logs.String())
	}
}
