package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"navix.sh/agentbox/envd/access"
	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/state"
)

// initHeader carries the platform's proof to the internal routes.
const initHeader = "X-Init-Token"

const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

var errNotReady = errors.New("sandbox is not ready")

// gate is the one place that decides who gets through: the access token first, then readiness.
type gate struct {
	state     *state.State
	initToken string
}

// selfChecked are the routes that check access themselves, or need none. Method and path must match exactly.
var selfChecked = map[string]bool{
	"GET /health": true, "POST /init": true, "GET /files": true, "POST /files": true,
}

// internalRoutes do not count as use of the sandbox and are open before it is armed.
var internalRoutes = map[string]bool{
	"GET /health": true, "POST /init": true, "GET /state": true, "GET /metrics": true,
}

// wrap guards every route. RPCs pass on to the interceptor, which refuses them in their own protocol.
func (g gate) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := r.Method + " " + r.URL.Path
		if !g.allowed(route, r.Header) {
			httperror.Write(w, httperror.New(http.StatusUnauthorized, unauthorized))
			return
		}
		if !internalRoutes[route] {
			switch err := g.use(route, r.Header); {
			case err == nil:
			case errors.Is(err, errNotReady) && isRPC(r.URL.Path):
			case errors.Is(err, errNotReady):
				httperror.Write(w, httperror.New(http.StatusServiceUnavailable, "%v", err))
				return
			default:
				httperror.Write(w, httperror.New(http.StatusUnauthorized, unauthorized))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (g gate) allowed(route string, header http.Header) bool {
	if selfChecked[route] || !g.state.Secured() {
		return true
	}
	if route == "GET /state" && g.initToken != "" {
		return true // it asks for the platform's token instead
	}
	return g.state.TokenMatches(header.Get(access.TokenHeader))
}

func isRPC(path string) bool {
	return strings.HasPrefix(path, "/process.Process/") || strings.HasPrefix(path, "/filesystem.Filesystem/")
}

var errForbidden = errors.New("the access token has changed")

// use marks the sandbox as used, and then looks once more whether the request may use it. So whoever changes the token,
// and then finds the sandbox unused, can rely on it: a request that was let in before is marked by then, or ends here.
func (g gate) use(route string, header http.Header) error {
	if !g.state.Ready() {
		return errNotReady
	}
	g.state.MarkUsed()
	if !g.allowed(route, header) {
		return errForbidden
	}
	return nil
}

// pass lets an RPC through once the sandbox is armed. The request has been read by now, which may have taken long: it
// may have come in before there was a token at all.
func (g gate) pass(procedure string, header http.Header) error {
	switch err := g.use(http.MethodPost+" "+procedure, header); {
	case err == nil:
		return nil
	case errors.Is(err, errNotReady):
		return connect.NewError(connect.CodeUnavailable, err)
	default:
		return connect.NewError(connect.CodeUnauthenticated, err)
	}
}

// WrapUnary is part of connect.Interceptor.
func (g gate) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := g.pass(req.Spec().Procedure, req.Header()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient is part of connect.Interceptor; envd is no client.
func (g gate) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is part of connect.Interceptor.
func (g gate) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := g.pass(conn.Spec().Procedure, conn.RequestHeader()); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}
