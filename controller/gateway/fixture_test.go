package gateway

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// claims is a routing table that a test fills by hand. Nothing else of the service is asked by the gateway.
type claims struct {
	claim.Service
	mu      sync.Mutex
	routes  map[string]claim.Route
	touches atomic.Int64
}

func (c *claims) Route(id string) (claim.Route, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.routes[id]
	return r, ok
}

func (c *claims) Touch(string) { c.touches.Add(1) }

func (c *claims) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.routes, id)
}

type keys map[string]access.Caller

func (k keys) Authenticate(_ context.Context, key string) (access.Caller, error) {
	if c, ok := k[key]; ok {
		return c, nil
	}
	return access.Caller{}, access.ErrUnauthenticated
}

const (
	ownerKey   = "agbx_00000000000000000000000000000000000000000000000000000000000000aa"
	foreignKey = "agbx_00000000000000000000000000000000000000000000000000000000000000bb"
)

// fixture is a gateway on a real port before sandboxes that are servers of this process.
type fixture struct {
	t       *testing.T
	claims  *claims
	gateway *Gateway
	server  *httptest.Server
	// url is the gateway's base address.
	url string
}

func newFixture(t *testing.T, domain string) *fixture {
	t.Helper()
	c := &claims{routes: map[string]claim.Route{}}
	g := New(Options{Claims: c, Domain: domain, Access: keys{
		ownerKey:   {KeyID: "a", Role: access.RoleTenant, Namespace: "ns", Team: "t", User: "u"},
		foreignKey: {KeyID: "b", Role: access.RoleTenant, Namespace: "other", Team: "t", User: "u"},
	}})
	server := httptest.NewUnstartedServer(g)
	server.Config = NewServer(g, nil)
	server.Start()
	f := &fixture{t: t, claims: c, gateway: g, server: server, url: server.URL}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		g.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return f
}

// sandbox serves a handler as a port of a new sandbox and returns what ends the sandbox.
func (f *fixture) sandbox(id string, port int, h http.Handler, change func(*claim.Route)) (kill func()) {
	f.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	inner := NewServer(h, nil)
	go func() { _ = inner.Serve(l) }()
	f.t.Cleanup(func() { _ = inner.Close() })
	return f.route(id, map[int]string{port: l.Addr().String()}, change)
}

// route adds a sandbox whose ports are the given addresses; any other port is closed.
func (f *fixture) route(id string, ports map[int]string, change func(*claim.Route)) (kill func()) {
	done := make(chan struct{})
	r := claim.Route{
		Owner: claim.Owner{Namespace: "ns", Team: "t", User: "u"},
		Dial: func(ctx context.Context, port int) (net.Conn, error) {
			addr, ok := ports[port]
			if !ok {
				addr = "127.0.0.1:1" // nothing listens there
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		},
		Done:        done,
		AccessToken: "envd-token",
	}
	if change != nil {
		change(&r)
	}
	f.claims.mu.Lock()
	f.claims.routes[id] = r
	f.claims.mu.Unlock()
	var once sync.Once
	kill = func() {
		once.Do(func() {
			f.claims.remove(id)
			close(done)
		})
	}
	f.t.Cleanup(kill)
	return kill
}

// request builds a request to a port of a sandbox in the header form.
func (f *fixture) request(method, id, port, path string) *http.Request {
	f.t.Helper()
	r, err := http.NewRequest(method, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("E2b-Sandbox-Id", id)
	r.Header.Set("E2b-Sandbox-Port", port)
	return r
}
