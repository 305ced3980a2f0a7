package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func newLogger(s Settings, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", s.LogLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch s.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", s.LogFormat)
}

// keepLibrariesQuiet sends what the Kubernetes libraries have to say through our logger, one level down.
func keepLibrariesQuiet(log *slog.Logger) {
	logger := logr.FromSlogHandler(quiet{log.With("component", "kubernetes").Handler()})
	klog.SetLogger(logger)
	ctrl.SetLogger(logger)
}

// quiet demotes errors to warnings (the libraries try again) and the rest to debug. What is more verbose than that is
// dropped: there the client writes down the bodies of requests and answers, and Secrets are among them.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelDebug && q.Handler.Enabled(ctx, demote(l))
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = demote(r.Level)
	if ofAStop(r) {
		r.Level = slog.LevelDebug
		if !q.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// ofAStop tells the errors of a clean stop: what it cancels says so, and controller-runtime's manager, which gives up
// its leadership, reports that as a loss. A loss that nobody asked for ends the manager with that error instead.
func ofAStop(r slog.Record) (yes bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, _ := a.Value.Any().(error)
		yes = err != nil && (errors.Is(err, context.Canceled) ||
			err.Error() == "leader election lost" && r.Message == "error received after stop sequence was engaged")
		return !yes
	})
	return yes
}

func demote(l slog.Level) slog.Level {
	if l < slog.LevelError {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}
