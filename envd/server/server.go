// Package server joins envd's routes behind one gate and serves them over HTTP/1.1 and h2c.
package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/rs/cors"

	"navix.sh/agentbox/envd/files"
	"navix.sh/agentbox/envd/filesystem"
	"navix.sh/agentbox/envd/metrics"
	"navix.sh/agentbox/envd/process"
	"navix.sh/agentbox/envd/spec/filesystem/filesystemconnect"
	"navix.sh/agentbox/envd/spec/process/processconnect"
	"navix.sh/agentbox/envd/state"
)

// Version is the envd version whose behaviour this one has; clients gate features on it.
const Version = "0.6.13"

// maxMessage bounds one RPC message, which a client otherwise could make as large as the memory.
const maxMessage = 64 << 20

// Config says what to serve.
type Config struct {
	State *state.State
	// InitToken proves the platform to the internal routes; empty falls back to E2B's rules.
	InitToken  string
	Processes  *process.Service
	Filesystem *filesystem.Service
	Metrics    *metrics.Collector
	// CAFile is where a sandbox's CA bundle is written.
	CAFile string
	// SetClock lets /init set the system's clock. In a container the clock is the node's, so it is off there.
	SetClock bool
}

// Handler returns all routes with their gate.
func Handler(c Config) http.Handler {
	gate := gate{state: c.State, initToken: c.InitToken}
	internal := &internal{Config: c}
	file := files.New(c.State)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", health)
	mux.HandleFunc("POST /init", internal.serveInit)
	mux.HandleFunc("GET /state", internal.reportState)
	mux.HandleFunc("GET /metrics", internal.reportMetrics)
	mux.HandleFunc("GET /envs", internal.reportEnvs)
	mux.HandleFunc("GET /files", file.Download)
	mux.HandleFunc("POST /files", file.Upload)
	mux.HandleFunc("POST /files/compose", file.Compose)
	for _, path := range []string{"/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"} {
		mux.HandleFunc("POST "+path, notImplemented)
	}
	options := []connect.HandlerOption{
		connect.WithInterceptors(gate),
		connect.WithReadMaxBytes(maxMessage),
	}
	mux.Handle("/"+processconnect.ProcessName+"/", whenCalled(func() (string, http.Handler) {
		return processconnect.NewProcessHandler(c.Processes, options...)
	}))
	mux.Handle("/"+filesystemconnect.FilesystemName+"/", whenCalled(func() (string, http.Handler) {
		return filesystemconnect.NewFilesystemHandler(c.Filesystem, options...)
	}))
	return crossOrigin(gate.wrap(mux))
}

// whenCalled makes a service's handler at its first call: unpacking the descriptions of all messages is a good part of
// envd's start, and the sandboxes that wait in a pool are started again and again without a call.
func whenCalled(makeHandler func() (string, http.Handler)) http.Handler {
	handler := sync.OnceValue(func() http.Handler {
		_, h := makeHandler()
		return h
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler().ServeHTTP(w, r) })
}

// crossOrigin lets browsers of any origin in: the access token is what protects a sandbox.
func crossOrigin(next http.Handler) http.Handler {
	return cors.New(cors.Options{
		AllowedOrigins: []string{"*"},
		AllowedMethods: []string{"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE"},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{
			"Location", "Cache-Control", "X-Content-Type-Options", "Content-Disposition", "Content-Encoding",
			"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin",
		},
		MaxAge: int((2 * time.Hour).Seconds()),
	}).Handler(next)
}

// New returns a server for the handler. It has no total timeouts: streams live as long as they are used.
func New(handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		ReadHeaderTimeout: 30 * time.Second,
		// Longer than the proxies in front keep a connection, so that they close it and not envd.
		IdleTimeout: 640 * time.Second,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
}

// Serve serves the listeners until ctx ends; then it gives requests that are under way until drain is done and cuts the rest.
func Serve(ctx context.Context, server *http.Server, listeners []net.Listener, drain func()) error {
	failed := make(chan error, len(listeners))
	for _, listener := range listeners {
		go func() { failed <- server.Serve(listener) }()
	}
	var first error
	open := len(listeners)
	select {
	case <-ctx.Done():
	case first = <-failed:
		open--
	}
	drain()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close()
	}
	for range open {
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) && first == nil {
			first = err
		}
	}
	return first
}
