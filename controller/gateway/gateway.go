// Package gateway is the data plane: it carries HTTP, WebSocket, SSE and gRPC traffic to a port of a sandbox.
//
// A request names its sandbox and port in one of three ways (see address.go). Where the traffic goes is decided by the
// platform's own table alone (claim.Service.Route), never by anything a client sends.
package gateway

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

// EnvdPort is the port that envd listens on in every sandbox.
const EnvdPort = 49983

// Options are the collaborators of a Gateway.
type Options struct {
	Claims claim.Service
	// Access checks API keys presented on the data plane instead of a sandbox's own token.
	Access access.Authenticator
	// Domain is the suffix of sandbox host names (`<port>-<id>.<domain>`), without a port. When it is empty, any host
	// name whose first label reads `<port>-<id>` addresses a sandbox.
	Domain string
	// Host is the platform's own host name, which may be one below the domain.
	Host   string
	Logger *slog.Logger
}

// Gateway is the handler of the data plane. Close ends what it keeps for live sandboxes.
type Gateway struct {
	claims claim.Service
	keys   access.Authenticator
	domain string
	host   string
	log    *slog.Logger

	mu       sync.Mutex
	backends map[string]*backend
	closed   chan struct{}
	watchers sync.WaitGroup
}

// New returns a Gateway. Serve it through NewServer, or with ConnContext installed, so that it can reset connections.
func New(o Options) *Gateway {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Gateway{
		claims:   o.Claims,
		keys:     o.Access,
		domain:   normalizeDomain(o.Domain),
		host:     hostName(o.Host),
		log:      o.Logger,
		backends: map[string]*backend{},
		closed:   make(chan struct{}),
	}
}

// Match reports whether a request is addressed to a sandbox, rightly or wrongly formed.
func (g *Gateway) Match(r *http.Request) bool {
	_, err := g.resolve(r)
	return !errors.Is(err, errNotAddressed) || willAddress(r)
}

// ServeHTTP carries one request to its sandbox.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, err := g.resolve(r)
	if err != nil {
		refuse(w, r, badAddress(err))
		return
	}
	if internalPath(target) {
		refuse(w, r, reservedPath(target.path()))
		return
	}
	route, ok := g.claims.Route(target.ID)
	if !ok {
		refuse(w, r, sandboxNotFound(target.ID))
		return
	}
	pass, denied := g.authorize(r, target, route)
	if denied != nil {
		refuse(w, r, denied)
		return
	}
	g.proxy(w, r, target, route, pass)
}

// Close cuts the streams to sandboxes, drops the pooled connections of every sandbox, and waits for what watches them.
// Other requests in flight end with their server.
func (g *Gateway) Close() {
	g.mu.Lock()
	select {
	case <-g.closed:
	default:
		close(g.closed)
	}
	g.mu.Unlock()
	g.watchers.Wait()
}
