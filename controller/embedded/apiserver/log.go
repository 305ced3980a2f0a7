package apiserver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// zapToSlog passes the errors of etcd on to slog. Its warnings are about disks slower than a server's.
type zapToSlog struct {
	log *slog.Logger
	// quiet is set when the store stops, which etcd reports as errors of its listeners.
	quiet *atomic.Bool
}

// storageVersion is what etcd says of a store so young that no snapshot was taken; it tries again by itself.
const storageVersion = "failed to update storage version"

func (z zapToSlog) Enabled(level zapcore.Level) bool {
	return level >= zapcore.ErrorLevel && !z.quiet.Load()
}

func (z zapToSlog) With(fields []zapcore.Field) zapcore.Core {
	return zapToSlog{z.log.With(attrs(fields)...), z.quiet}
}

func (z zapToSlog) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if z.Enabled(e.Level) && e.Message != storageVersion {
		return ce.AddCore(e, z)
	}
	return ce
}

func (z zapToSlog) Write(e zapcore.Entry, fields []zapcore.Field) error {
	z.log.Log(context.Background(), slog.LevelError, "etcd: "+e.Message, attrs(fields)...)
	return nil
}

func (z zapToSlog) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	out := make([]any, 0, 2*len(m.Fields))
	for k, v := range m.Fields {
		out = append(out, k, v)
	}
	return out
}

var klogOnce sync.Once

// redirectKlog sends the warnings of the Kubernetes libraries, which log through one global, to the log of the first
// server of this process.
func redirectKlog(log *slog.Logger) {
	klogOnce.Do(func() { klog.SetSlogLogger(slog.New(warnings{log.Handler()})) })
}

// warnings drops everything below a warning.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) WithAttrs(a []slog.Attr) slog.Handler { return warnings{w.Handler.WithAttrs(a)} }

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
