package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

var errStopped = errors.New("the API server has stopped")

// inProcess carries the requests of this process to the API server by calling its handler. A connection, even a local
// one, cost a claim a tenth of its time.
type inProcess struct {
	handler http.Handler // set before the server runs
	// life ends when the server stops; what is under way then is cut off.
	life context.Context
	end  context.CancelFunc
}

func newInProcess() *inProcess {
	t := &inProcess{}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

// config is an administrator's. The token is asked for all the same: one way in, one rule.
func (t *inProcess) config(token string) *rest.Config {
	return &rest.Config{
		Host:        "http://embedded", // never looked up
		BearerToken: token,
		QPS:         -1, // the clients are this process; they hold themselves back
		Transport:   t,
	}
}

// RoundTrip implements http.RoundTripper.
func (t *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	ctx, cancel := context.WithCancel(r.Context())
	detach := context.AfterFunc(t.life, cancel)
	release := func() { detach(); cancel() }
	if t.life.Err() != nil {
		release()
		_ = r.Body.Close()
		return nil, errStopped
	}
	request := r.Clone(ctx)
	request.RequestURI = r.URL.RequestURI()
	if streams(r) {
		return t.stream(r, request, release)
	}
	defer release()
	defer r.Body.Close()
	var body bytes.Buffer
	a := newAnswer(&body)
	if err := t.serve(a, request); err != nil {
		return nil, err
	}
	if err := r.Context().Err(); err != nil {
		return nil, context.Cause(r.Context())
	}
	a.begin(http.StatusOK)
	return a.response(r, io.NopCloser(&body), int64(body.Len())), nil
}

// streams reports whether the answer has no end of its own.
func streams(r *http.Request) bool {
	return strings.Contains(r.URL.RawQuery, "watch=") || strings.HasSuffix(r.URL.Path, "/log")
}

func (t *inProcess) stream(r, request *http.Request, release func()) (*http.Response, error) {
	out, in := io.Pipe()
	// A handler that waits for a reader who has gone without closing would wait for ever.
	context.AfterFunc(request.Context(), func() { _ = in.Close() })
	a := newAnswer(in)
	failed := make(chan error, 1)
	go func() {
		defer release()
		defer r.Body.Close()
		err := t.serve(a, request)
		_ = in.CloseWithError(err)
		if err != nil {
			failed <- err
			return
		}
		a.begin(http.StatusOK)
	}()
	select {
	case <-a.begun:
	case <-request.Context().Done():
	}
	select { // an answer that has ended already is one all the same
	case err := <-failed:
		return nil, err
	case <-a.begun:
		return a.response(r, &streamBody{out, release}, -1), nil
	default:
	}
	if err := r.Context().Err(); err != nil {
		return nil, context.Cause(r.Context())
	}
	return nil, errStopped
}

func (t *inProcess) serve(a *answer, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil { // logged by the handler
			err = fmt.Errorf("the API server could not answer %s %s: %v", r.Method, r.URL.Path, p)
		}
	}()
	t.handler.ServeHTTP(a, r)
	return nil
}

// streamBody ends the handler when the reader has enough.
type streamBody struct {
	*io.PipeReader
	release func()
}

func (b *streamBody) Close() error {
	b.release()
	return b.PipeReader.Close()
}

// answer is the http.ResponseWriter of one request.
type answer struct {
	header http.Header
	body   io.Writer
	once   sync.Once
	begun  chan struct{} // closed once code and sent are final
	code   int
	sent   http.Header
}

func newAnswer(body io.Writer) *answer {
	return &answer{header: http.Header{}, body: body, begun: make(chan struct{})}
}

func (a *answer) begin(code int) {
	a.once.Do(func() {
		a.code, a.sent = code, a.header.Clone()
		close(a.begun)
	})
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) { a.begin(code) }

func (a *answer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.body.Write(p)
}

// Flush has nothing to hold back.
func (a *answer) Flush() { a.begin(http.StatusOK) }

// CloseNotify is what the library knows a connection by; the request's context says when the client has gone.
func (a *answer) CloseNotify() <-chan bool { return nil }

func (a *answer) response(r *http.Request, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: http.StatusText(a.code), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: body, ContentLength: length, Request: r,
	}
}
