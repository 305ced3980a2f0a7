package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"navix.sh/agentbox/controller/claim"
)

// Limits of the connections kept to one sandbox.
const (
	idlePerPort    = 16
	idleTimeout    = 30 * time.Second
	dialAttempt    = 10 * time.Second
	headerMaxBytes = 1 << 20
)

// dialPauses are the waits between attempts to reach a port that nothing listens on yet (as E2B's proxy has them).
var dialPauses = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond}

// dialError means that a connection to a port of a sandbox could not be made.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// backend holds the pooled connections to one sandbox until the sandbox ends.
type backend struct {
	route      claim.Route
	http1, h2c *http.Transport
}

// backendOf returns the backend of a sandbox's current claim.
func (g *Gateway) backendOf(id string, route claim.Route) *backend {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b, ok := g.backends[id]; ok && b.route.Done == route.Done {
		return b
	}
	b := &backend{route: route, http1: transport(route, false), h2c: transport(route, true)}
	select {
	case <-g.closed: // serve this request, keep nothing
		return b
	default:
	}
	g.backends[id] = b
	g.watchers.Add(1)
	go g.dropAtEnd(id, b)
	return b
}

// dropAtEnd forgets a backend when its sandbox ends or the gateway closes.
func (g *Gateway) dropAtEnd(id string, b *backend) {
	defer g.watchers.Done()
	select {
	case <-b.route.Done:
	case <-g.closed:
	}
	g.mu.Lock()
	if g.backends[id] == b {
		delete(g.backends, id)
	}
	g.mu.Unlock()
	b.http1.CloseIdleConnections()
	b.h2c.CloseIdleConnections()
}

func transport(route claim.Route, h2c bool) *http.Transport {
	speaks := &http.Protocols{}
	speaks.SetHTTP1(!h2c)
	speaks.SetUnencryptedHTTP2(h2c)
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer(route),
		Protocols:              speaks,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    idlePerPort,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: headerMaxBytes,
	}
}

// dialer reaches the ports of one sandbox. Of the address it reads the port alone.
func dialer(route claim.Route) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		_, text, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("port %q of a sandbox: %w", text, err)
		}
		conn, err := dial(ctx, route, port)
		if err != nil {
			return nil, &dialError{err}
		}
		return conn, nil
	}
}

// dial tries again while the port is closed and the sandbox lives.
func dial(ctx context.Context, route claim.Route, port int) (net.Conn, error) {
	for attempt := 0; ; attempt++ {
		one, cancel := context.WithTimeout(ctx, dialAttempt)
		conn, err := route.Dial(one, port)
		cancel()
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || attempt == len(dialPauses) {
			return nil, err
		}
		pause := time.NewTimer(dialPauses[attempt])
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-route.Done:
			pause.Stop()
			return nil, err
		}
	}
}
