package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/gateway"
)

// platform is the assembled controller.
type platform struct {
	manager    ctrl.Manager
	access     *access.Store
	claims     *claim.Manager
	gateway    *gateway.Gateway
	server     *http.Server
	metrics    *prometheus.Registry
	log        *slog.Logger
	grace      time.Duration
	ready      atomic.Bool
	serveError chan error
	stopping   chan struct{} // closed to end the streams of the native API
}

// runningManager is the reconcilers and everything else that the manager runs.
type runningManager struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (p *platform) start(ctx context.Context) *runningManager {
	ctx, cancel := context.WithCancel(ctx)
	r := &runningManager{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = p.manager.Start(ctx)
	}()
	return r
}

func (r *runningManager) stop(ctx context.Context) error {
	r.cancel()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return errors.New("the reconcilers did not stop in time")
	}
}

// why prefers the manager's own error to the symptom seen elsewhere.
func (r *runningManager) why(symptom error) error {
	select {
	case <-r.done:
		if r.err != nil {
			return r.err
		}
	default:
	}
	return symptom
}

// shutdown ends streams, which have no end of their own, and lets other requests in flight finish within the grace
// period.
func (p *platform) shutdown(ctx context.Context) error {
	p.ready.Store(false)
	grace, cancel := context.WithTimeout(ctx, p.grace)
	defer cancel()
	close(p.stopping)
	p.gateway.Close()
	err := p.server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = p.server.Close()
	}
	return err
}
