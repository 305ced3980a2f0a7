// Package apiserver is a Kubernetes API in this process: etcd, the CRD server, and the built-in types that the
// platform uses, with the semantics that clients know (watch, conflicts, server-side apply, graceful deletion).
//
// It serves TLS on a loopback port for kubectl, and the process itself by a call. Both ask for the same token; nobody is
// anonymous.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

const (
	// stopLimit bounds how long requests in flight hold a stop up.
	stopLimit = 2 * time.Second
	// settleLimit bounds how long a stop waits for a start that was given up.
	settleLimit = 5 * time.Second
)

// Options say where the API server keeps its data.
type Options struct {
	// DataDir is made if need be, and kept private; one process at a time owns it.
	DataDir string
	Logger  *slog.Logger
}

// Server is a running API server.
type Server struct {
	// Config is an administrator's, for this process only.
	Config *rest.Config
	// Kubeconfig is the path of a 0600 kubeconfig for other processes of this user.
	Kubeconfig string

	lock    *os.File
	store   *store
	tls     net.Listener
	generic *server.GenericAPIServer
	own     *inProcess
	// cancel is set once the server runs; done is closed, and runErr final, when it does not any more.
	cancel context.CancelFunc
	done   chan struct{}
	runErr error
	// settled is true once the server can be stopped: its library ends the process when a hook of the start is cut short.
	settled bool
	failed  chan error
	logs    atomic.Pointer[LogFunc]
}

// Start opens the data directory and returns once the API serves, the CRDs of the platform included.
// ctx bounds the start only; Stop ends the server.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	if o.DataDir == "" {
		return nil, errors.New("no data directory: name one")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, fmt.Errorf("find the data directory %s: %w", o.DataDir, err)
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	redirectKlog(log)
	s := &Server{own: newInProcess(), Kubeconfig: filepath.Join(dir, "kubeconfig"), done: make(chan struct{}), failed: make(chan error, 1)}
	if s.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if err := s.open(ctx, dir, log); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start the API server: %w", context.Cause(ctx))
	}
	s.run(context.WithoutCancel(ctx))
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// open acquires everything that the server stands on. Its listeners queue clients from here on.
func (s *Server) open(ctx context.Context, dir string, log *slog.Logger) error {
	creds, err := loadCredentials(dir)
	if err != nil {
		return err
	}
	if s.store, err = startStore(ctx, dir, log); err != nil {
		return err
	}
	if s.tls, err = listen(lastAddress(s.Kubeconfig)); err != nil {
		return err
	}
	s.Config = s.own.config(creds.token)
	if s.generic, s.own.handler, err = build(s.store.endpoint, s.tls, creds, s.Config, &s.logs); err != nil {
		return fmt.Errorf("build the API server: %w", err)
	}
	return creds.writeKubeconfig(s.Kubeconfig, s.tls.Addr().String())
}

// run serves until Stop.
func (s *Server) run(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.generic.ShutdownTimeout = stopLimit
	prepared := s.generic.PrepareRun()
	go func() {
		defer close(s.done)
		s.runErr = prepared.RunWithContext(ctx)
	}()
	go func() {
		select {
		case err := <-s.store.etcd.Err():
			s.failed <- fmt.Errorf("the store failed: %w", err)
		case <-s.store.etcd.Server.StopNotify():
			s.failed <- errors.New("the store stopped; its log says why")
		case <-s.done:
			if ctx.Err() == nil {
				s.failed <- fmt.Errorf("the API server ended: %w", s.runErr)
			}
		}
	}()
}

// ServeLogs lets clients read container logs, from open. Until it is called they get a 501.
func (s *Server) ServeLogs(open LogFunc) { s.logs.Store(&open) }

// Failed delivers the reason when the server ends by itself, which only a broken disk or a bug brings about.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop ends the API server, then what it stands on, and gives the data directory free. Requests in flight and watches
// get two seconds at most.
func (s *Server) Stop() {
	switch {
	case s.cancel != nil:
		if !s.settled {
			ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
			_ = s.awaitHooks(ctx)
			cancel()
		}
		s.cancel()
		<-s.done
	case s.generic != nil:
		s.generic.Destroy()
	}
	s.own.end()
	if s.tls != nil {
		_ = s.tls.Close()
	}
	if s.store != nil {
		s.store.stop()
	}
	_ = s.lock.Close()
}

// listen takes the address of an earlier start when it is free, and otherwise a port from the kernel.
func listen(last string) (net.Listener, error) {
	if host, _, err := net.SplitHostPort(last); err == nil && host == "127.0.0.1" {
		if l, err := net.Listen("tcp", last); err == nil {
			return l, nil
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on the loopback interface: %w", err)
	}
	return l, nil
}
