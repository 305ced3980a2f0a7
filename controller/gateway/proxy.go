package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"navix.sh/agentbox/controller/claim"
)

// proxy carries one authorised request. It streams both ways, flushes at once and has no time limit of its own.
func (g *Gateway) proxy(w http.ResponseWriter, r *http.Request, t Target, route claim.Route, p pass) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	end := abortAtEnd(r.WithContext(ctx), cancel, route)
	defer end.finish()

	b := g.backendOf(t.ID, route)
	via := b.http1
	switch {
	case isHealth(r, t):
		via = b.quiet
	default:
		g.claims.Touch(t.ID)
		if isGRPC(r) {
			via = b.h2c
		}
	}
	if r.ProtoMajor == 1 {
		// A client may go on sending while it reads the answer; without this the server would first drain the body.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	rp := &httputil.ReverseProxy{
		Transport:     via,
		FlushInterval: -1,
		Rewrite:       func(pr *httputil.ProxyRequest) { rewrite(pr, t, route, p) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			g.failed(w, r, t, route, err)
		},
		ErrorLog:   slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
		BufferPool: buffers{},
	}
	rp.ServeHTTP(w, r.WithContext(ctx))
	if ended(route) {
		panic(http.ErrAbortHandler) // never let a cut answer look whole
	}
}

// rewrite points the outgoing request at the sandbox. Host, path, query and forwarding headers stay as they came.
func rewrite(pr *httputil.ProxyRequest, t Target, route claim.Route, p pass) {
	out := pr.Out
	out.URL = &url.URL{
		Scheme:     "http",
		Host:       fmt.Sprintf("sandbox:%d", t.Port),
		RawQuery:   t.RawQuery,
		ForceQuery: t.ForceQuery,
	}
	if decoded, err := url.PathUnescape(t.RawPath); err == nil {
		out.URL.Path, out.URL.RawPath = decoded, t.RawPath
	} else {
		out.URL.Path = t.RawPath
	}
	if !strings.HasPrefix(t.RawPath, "//") {
		out.URL.Opaque = t.RawPath // byte for byte; a leading // would be taken for a host
	}
	out.Host = pr.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := pr.In.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	withoutSecrets(out.Header, t, route)
	if p.AccessToken != "" {
		out.Header.Set(headerAccessToken, p.AccessToken)
	}
}

// failed answers a request that got no answer from its sandbox.
func (g *Gateway) failed(w http.ResponseWriter, r *http.Request, t Target, route claim.Route, err error) {
	var dialed *dialError
	switch {
	case ended(route):
		panic(http.ErrAbortHandler)
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client is gone
	case errors.As(err, &dialed):
		g.log.Debug("port not reachable", "sandbox", t.ID, "port", t.Port, "error", err)
		refuse(w, r, portClosed(t))
	default:
		g.log.Debug("sandbox did not answer", "sandbox", t.ID, "port", t.Port, "error", err)
		refuse(w, r, brokenAnswer(t))
	}
}

func ended(route claim.Route) bool {
	select {
	case <-route.Done:
		return true
	default:
		return false
	}
}

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// flight is one request under way to a sandbox.
type flight struct {
	mu   sync.Mutex
	over bool
}

func (f *flight) finish() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
}

// abortAtEnd resets the client's connection when the sandbox ends before the request does.
func abortAtEnd(r *http.Request, cancel context.CancelFunc, route claim.Route) *flight {
	f := &flight{}
	go func() {
		select {
		case <-r.Context().Done():
			return
		case <-route.Done:
		}
		f.mu.Lock()
		if !f.over {
			resetClient(r)
		}
		f.mu.Unlock()
		cancel()
	}()
	return f
}

// buffers are shared between the copies of all requests.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (buffers) Get() []byte  { return *bufferPool.Get().(*[]byte) }
func (buffers) Put(b []byte) { bufferPool.Put(&b) }
