// Package apiserver is a Kubernetes API in this process: etcd, the CRD server, and the built-in types that the
// platform uses, with the semantics that clients know (watch, conflicts, server-side apply, graceful deletion).
//
// It serves TLS on a loopback port for kubectl, and plain HTTP over memory for the process itself. Both ask for the
// same token; nobody is anonymous.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"k8s.io/client-go/rest"
)

const (
	// bufferBytes is how much one side of an in-memory connection may be ahead of the other.
	bufferBytes = 64 << 10
	// stopLimit bounds how long requests in flight hold a stop up.
	stopLimit = 2 * time.Second
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

	log    *slog.Logger
	lock   *os.File
	store  *store
	memory *bufconn.Listener
	http   *http.Server
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Start opens the data directory and returns once the API serves, the CRDs of the platform included.
// ctx bounds the start only; Stop ends the server.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	s := &Server{log: o.Logger, done: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	redirectKlog(s.log)
	dir, err := filepath.Abs(o.DataDir)
	if err != nil || o.DataDir == "" {
		return nil, fmt.Errorf("no usable data directory: %q; name one", o.DataDir)
	}
	if s.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	creds, err := loadCredentials(dir)
	if err != nil {
		return nil, err
	}
	if s.store, err = startStore(ctx, dir, logger{s.log}); err != nil {
		return nil, err
	}
	s.Kubeconfig = filepath.Join(dir, "kubeconfig")
	tls, err := listen(lastAddress(s.Kubeconfig))
	if err != nil {
		return nil, err
	}
	s.memory = bufconn.Listen(bufferBytes)
	s.Config = &rest.Config{
		// The name is never looked up: Dial leads to this process.
		Host:        "http://embedded",
		BearerToken: creds.token,
		QPS:         -1,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.memory.DialContext(ctx)
		},
	}
	generic, err := build(s.store.endpoint, tls, creds, s.Config)
	if err != nil {
		tls.Close()
		return nil, fmt.Errorf("build the API server: %w", err)
	}
	if err := creds.writeKubeconfig(s.Kubeconfig, tls.Addr().String()); err != nil {
		tls.Close()
		return nil, err
	}

	generic.ShutdownTimeout = stopLimit
	prepared := generic.PrepareRun()
	s.http = &http.Server{Handler: generic.Handler, ReadHeaderTimeout: 30 * time.Second}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	go func() { _ = s.http.Serve(s.memory) }()
	go func() {
		defer close(s.done)
		s.err = prepared.RunWithContext(run)
	}()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s, nil
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

// Stop ends the API server, then its store, and gives the data directory free. Requests in flight get until ctx ends,
// and two seconds at most.
func (s *Server) Stop(ctx context.Context) error {
	s.release()
	if s.err != nil && !errors.Is(s.err, context.Canceled) {
		return fmt.Errorf("stop the API server: %w", s.err)
	}
	return nil
}

// release ends whatever of the server has been started, the API before what it stands on.
func (s *Server) release() {
	if s.cancel != nil {
		s.cancel()
		<-s.done
		_ = s.http.Close()
	}
	if s.memory != nil {
		_ = s.memory.Close()
	}
	if s.store != nil {
		s.store.stop()
	}
	_ = s.lock.Close()
}
