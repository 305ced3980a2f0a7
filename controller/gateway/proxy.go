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
	"sync/atomic"

	"navix.sh/agentbox/controller/claim"
)

// proxy carries one authorised request. It streams both ways, flushes at once and has no time limit of its own.
func (g *Gateway) proxy(w http.ResponseWriter, r *http.Request, t Target, route claim.Route, p pass) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	under := abortAtEnd(r.WithContext(ctx), cancel, route)
	under.closed = g.closed
	defer under.finish()

	answer := under.answer
	if !isHealth(r, t) {
		// A request is activity for as long as it is open: a terminal or a command that says nothing is in use, and
		// what envd sends to keep a stream alive must not be what decides.
		u := g.use(t.ID, p)
		defer u.end()
		answer = func(r *http.Response) error {
			u.answered(r)
			return under.answer(r)
		}
	}
	b := g.backendOf(t.ID, route)
	via := b.http1
	if isGRPC(r) {
		via = b.h2c
	}
	if r.ProtoMajor == 1 {
		// A client may go on sending while it reads the answer; without this the server would first drain the body.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	rp := &httputil.ReverseProxy{
		Transport:      via,
		FlushInterval:  -1,
		Rewrite:        func(pr *httputil.ProxyRequest) { rewrite(pr, t, route, p) },
		ModifyResponse: answer,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			g.failed(w, r, t, route, err)
		},
		ErrorLog:   slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
		BufferPool: buffers{},
	}
	rp.ServeHTTP(w, r.WithContext(ctx))
	if under.partial() && (ended(route) || under.cut.Load()) {
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
	case ended(route) && repliable(r):
		w.Header().Set("Connection", "close")
		refuse(w, r, sandboxNotFound(t.ID))
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

// errEnded means that the sandbox ended before its answer began.
var errEnded = errors.New("the sandbox has ended")

// flight is one request under way to a sandbox.
type flight struct {
	request   *http.Request
	cancel    context.CancelFunc
	closed    <-chan struct{} // the gateway's
	cut       atomic.Bool     // a stream was ended because the gateway closes
	repliable bool            // the end can still be told by an answer, as long as none has begun
	mu        sync.Mutex
	begun     bool // the client has, or is getting, the header of the sandbox's answer
	whole     bool // and there is nothing after the header
	ended     bool // the sandbox ended before the request was over
	over      bool
}

// abortAtEnd ends a request when its sandbox ends. A client that has part of an answer, or is still sending, is cut
// off with a reset of its connection; one that only waits gets the answer that the next request would get.
func abortAtEnd(r *http.Request, cancel context.CancelFunc, route claim.Route) *flight {
	f := &flight{request: r, cancel: cancel, repliable: repliable(r)}
	go func() {
		select {
		case <-r.Context().Done():
			return
		case <-route.Done:
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.over || f.whole {
			return
		}
		f.ended = true
		if f.begun || !f.repliable {
			resetClient(r)
		}
		cancel()
	}()
	return f
}

// repliable reports whether a request is sent whole with its header: an answer to it needs no more of the client.
func repliable(r *http.Request) bool { return r.ContentLength == 0 }

// answer begins the sandbox's answer, unless the sandbox has ended.
func (f *flight) answer(response *http.Response) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return errEnded
	}
	f.begun, f.whole = true, response.Body == http.NoBody
	if isStream(response.Header) {
		go f.cutAtClose()
	}
	return nil
}

// cutAtClose ends a stream when the gateway closes: it may have no end of its own.
func (f *flight) cutAtClose() {
	select {
	case <-f.request.Context().Done():
	case <-f.closed:
		f.cut.Store(true)
		f.mu.Lock()
		if !f.over {
			resetClient(f.request)
		}
		f.mu.Unlock()
		f.cancel()
	}
}

// isStream reports whether an answer is one of a kind that lasts: server-sent events, and calls of Connect and gRPC that
// stream.
func isStream(h http.Header) bool {
	kind := h.Get("Content-Type")
	for _, prefix := range []string{"text/event-stream", "application/connect+", "application/grpc"} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}

// partial reports whether what the client got may be a part of an answer.
func (f *flight) partial() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun && !f.whole
}

func (f *flight) finish() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
}

// buffers are shared between the copies of all requests.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (buffers) Get() []byte  { return *bufferPool.Get().(*[]byte) }
func (buffers) Put(b []byte) { bufferPool.Put(&b) }
