// Package client speaks HTTP with a deployment: it authenticates, retries what is
// safe, bounds every answer, and turns whatever is not a success into a clierr.Error.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"navix.sh/agentbox/cli/clierr"
)

const (
	// DefaultTimeout is the longest time that one request may take.
	DefaultTimeout = 30 * time.Second
	// maxAnswer is the longest answer that is read into memory, in bytes.
	maxAnswer = 64 << 20
)

// The headers of the API.
const (
	HeaderKey       = "AGENTBOX-API-KEY"
	HeaderRequestID = "X-Request-Id"
	HeaderSession   = "X-AgentBox-Session-Id"
	HeaderServer    = "X-AgentBox-Server-Version"
)

// Options configures a Client.
type Options struct {
	Base      string // address that paths are appended to, without trailing slash
	Key       string // empty: no credential is sent
	KeyFrom   string // where the key came from, for the refusal of a wrong one
	Bearer    bool   // the key travels as Authorization: Bearer instead of AGENTBOX-API-KEY
	CAFile    string // PEM, in addition to the system's roots and SSL_CERT_FILE
	Timeout   time.Duration
	UserAgent string
	Session   string // id of the agent session, for approvals that hold for a session
	Getenv    func(string) string
}

// Client sends requests to one deployment. It is safe for concurrent use.
type Client struct {
	o    Options
	http *http.Client
	wait func(context.Context, time.Duration) error // between attempts
	own  *atomic.Bool                               // an answer came from this project's controller
}

// Request is one call. Path is appended to Options.Base as it is (already encoded).
type Request struct {
	Method string
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte // JSON; nil for none
}

// Response is a success.
type Response struct {
	Status    int
	Header    http.Header
	Body      []byte // valid JSON, or empty
	RequestID string
}

// New returns a client. It fails when the certificate file cannot be used.
func New(o Options) (*Client, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	transport, err := NewTransport(o)
	if err != nil {
		return nil, err
	}
	return &Client{o: o, http: &http.Client{Transport: transport, CheckRedirect: checkRedirect}, wait: sleep, own: new(atomic.Bool)}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// At returns a client for another base address of the same deployment, sharing connections.
func (c *Client) At(base string) *Client {
	other := *c
	other.o.Base = base
	return &other
}

// Base is the address that paths are appended to.
func (c *Client) Base() string { return c.o.Base }

// Own reports whether an answer came straight from this project's controller, which
// has no console pages to link to.
func (c *Client) Own() bool { return c.own.Load() }

// Do sends the request and reads the whole answer. Reads are tried again when the
// connection breaks or the server is busy; writes only when the server says that it
// did not take them (429, or 503 with Retry-After).
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	for attempt := 0; ; attempt++ {
		response, retry, err := c.once(ctx, r)
		if err == nil || retry < 0 || attempt >= maxRetries {
			return response, err
		}
		if c.wait(ctx, pause(attempt, retry)) != nil {
			return nil, err
		}
	}
}

// once returns, with an error, how long to wait before the next attempt: zero for
// the usual pause, negative for no further attempt.
func (c *Client) once(ctx context.Context, r Request) (*Response, time.Duration, error) {
	limited, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, errTimeout)
	defer cancel()
	request, err := c.request(limited, r, "application/json")
	if err != nil {
		return nil, noRetry, err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, retryTransport(r.Method, err), c.transportError(limited, request, err)
	}
	defer answer.Body.Close()
	if answer.Header.Get(HeaderServer) != "" {
		c.own.Store(true)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return nil, retryTransport(r.Method, err), c.transportError(limited, request, err)
	}
	if len(body) > maxAnswer {
		return nil, noRetry, clierr.New(clierr.BadResponse, "the answer of %s is longer than %d MiB", r.Path, maxAnswer>>20).
			Hint("narrow the list with --filter or --limit")
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		response, err := success(answer, body, requestID(answer, request))
		return response, noRetry, err
	}
	return nil, retryStatus(r.Method, answer), c.refusal(answer, body, requestID(answer, request))
}

// Stream sends a GET whose answer arrives bit by bit and has no time limit beyond
// ctx once it has begun. The caller closes the body.
func (c *Client) Stream(ctx context.Context, r Request, accept string) (*http.Response, error) {
	begin, started := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.o.Timeout, func() { started(errTimeout) })
	request, err := c.request(begin, r, accept)
	if err != nil {
		timer.Stop()
		started(nil)
		return nil, err
	}
	answer, err := c.http.Do(request)
	if !timer.Stop() && err == nil {
		answer.Body.Close()
		err = errTimeout
	}
	if err != nil {
		defer started(nil)
		return nil, c.transportError(begin, request, err)
	}
	answer.Body = &cancelBody{answer.Body, func() { started(nil) }}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, c.transportError(begin, request, err)
	}
	return nil, c.refusal(answer, body, requestID(answer, request))
}

// refusal is a failure. That of a key says where the key came from: which header carries it is no matter of the caller's.
func (c *Client) refusal(answer *http.Response, body []byte, id string) error {
	err := failure(answer, body, id)
	var e *clierr.Error
	if errors.As(err, &e) && e.Code == clierr.Unauthenticated && c.o.KeyFrom != "" {
		e.Hints = nil
		return e.Hint("the key came from "+c.o.KeyFrom+"; is it one of this address, and still valid?", "abx context show")
	}
	return err
}

type cancelBody struct {
	io.ReadCloser
	cancel func()
}

func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

func (c *Client) request(ctx context.Context, r Request, accept string) (*http.Request, error) {
	target := c.o.Base + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, target, body)
	if err != nil {
		return nil, clierr.New(clierr.InvalidValue, "%q is no address to send a request to", target).Because(err)
	}
	for name, values := range r.Header {
		request.Header[name] = values
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", c.o.UserAgent)
	request.Header.Set(HeaderRequestID, newRequestID())
	if r.Body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.o.Session != "" {
		request.Header.Set(HeaderSession, c.o.Session)
	}
	if c.o.Key != "" && c.o.Bearer {
		request.Header.Set("Authorization", "Bearer "+c.o.Key)
	} else if c.o.Key != "" {
		request.Header.Set(HeaderKey, c.o.Key)
	}
	return request, nil
}

// transportError explains why there was no answer.
func (c *Client) transportError(ctx context.Context, request *http.Request, err error) error {
	var cause *clierr.Error
	if errors.As(err, &cause) {
		return cause
	}
	where := request.URL.Scheme + "://" + request.URL.Host
	switch {
	case errors.Is(context.Cause(ctx), errTimeout) || errors.Is(err, errTimeout):
		return clierr.New(clierr.Timeout, "%s did not answer within %s", where, c.o.Timeout).Because(errTimeout).
			Hint("give it longer with --timeout")
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return clierr.New(clierr.Timeout, "time ran out while waiting for %s", where).Because(err).Hint("give it longer with --timeout")
	case ctx.Err() != nil:
		return clierr.New(clierr.Interrupted, "interrupted").Because(ctx.Err())
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	e := clierr.New(clierr.Unreachable, "%s could not be reached: %v", where, err).Because(err)
	if isCertificate(err) {
		return e.Hint("if a company's certificate authority signs this address, name its PEM file with --ca-file or SSL_CERT_FILE")
	}
	return e.Hint("abx context show tells which address is used, and why")
}

func requestID(answer *http.Response, request *http.Request) string {
	if id := answer.Header.Get(HeaderRequestID); id != "" {
		return id
	}
	return request.Header.Get(HeaderRequestID)
}

func newRequestID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return "abx-" + hex.EncodeToString(b[:])
}

func hostname(u *url.URL) string { return strings.ToLower(u.Hostname()) }
