package client

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"navix.sh/agentbox/cli/clierr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func none(string) string { return "" }

// fixture is a server and a client that records its pauses instead of waiting.
type fixture struct {
	*Client
	pauses []time.Duration
}

func serve(t *testing.T, o Options, h http.HandlerFunc) *fixture {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	o.Base = server.URL
	return dial(t, o)
}

func dial(t *testing.T, o Options) *fixture {
	t.Helper()
	if o.Getenv == nil {
		o.Getenv = none
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	f := &fixture{Client: c}
	c.wait = func(_ context.Context, d time.Duration) error { f.pauses = append(f.pauses, d); return nil }
	return f
}

func reply(w http.ResponseWriter, status int, kind, body string) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want map[string]string
	}{
		{Options{Key: "k", UserAgent: "abx/1", Session: "s"}, map[string]string{
			HeaderKey: "k", "Authorization": "", "User-Agent": "abx/1", HeaderSession: "s", "Accept": "application/json", "Content-Type": "application/json"}},
		{Options{Key: "k", Bearer: true}, map[string]string{HeaderKey: "", "Authorization": "Bearer k", HeaderSession: ""}},
		{Options{}, map[string]string{HeaderKey: "", "Authorization": ""}},
	} {
		var got http.Header
		f := serve(t, c.o, func(w http.ResponseWriter, r *http.Request) {
			got = r.Header
			reply(w, 200, "application/json", "{}")
		})
		r, err := f.Do(t.Context(), Request{Method: "POST", Path: "/x", Body: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range c.want {
			if got.Get(name) != want {
				t.Errorf("%s = %q, want %q", name, got.Get(name), want)
			}
		}
		if id := got.Get(HeaderRequestID); id == "" || r.RequestID != id {
			t.Errorf("request id %q, reported %q", id, r.RequestID)
		}
	}
}

func TestAnswers(t *testing.T) {
	const js = "application/json"
	for _, c := range []struct {
		name   string
		status int
		kind   string
		body   string
		code   string
		exit   int
		says   string
	}{
		{"ok", 200, js, `{"a":1}`, "", 0, ""},
		{"problem+json counts", 200, "application/vnd.x+json", `{}`, "", 0, ""},
		{"no content", 204, "", "", "", 0, ""},
		{"login page", 200, "text/html", "<html>Sign in", clierr.BadResponse, 1, "not this API"},
		{"broken JSON", 200, js, `{"a":`, clierr.BadResponse, 1, "not this API"},
		{"HTML 404", 404, "text/html", "<h1>nope", clierr.BadResponse, 1, "not this API"},
		{"JSON 404 of something else", 404, js, `{"message":"no route"}`, clierr.BadResponse, 1, "not this API"},
		{"HTML 502", 502, "text/html", "<h1>Bad gateway", clierr.ServerError, 1, "502"},
		{"HTML 403", 403, "text/html", "<h1>WAF", clierr.Forbidden, 3, "403"},
		{"401", 401, js, `{"error":"bad key"}`, clierr.Unauthenticated, 3, "bad key"},
		{"404", 404, js, `{"error":"no such env","hint":["abx envs"]}`, clierr.NotFound, 4, "no such env"},
		{"409", 409, js, `{"error":"exists"}`, clierr.Conflict, 7, "exists"},
		{"412", 412, js, `{"error":"changed"}`, clierr.Conflict, 7, "changed"},
		{"500 with detail", 500, js, `{"error":"boom","detail":{"why":"x"}}`, clierr.ServerError, 1, `boom: {"why":"x"}`},
		{"501", 501, js, `{"error":"later"}`, clierr.NotImplemented, 1, "later"},
		{"own code of the server", 400, js, `{"error":"no","errorCode":"QUOTA_UNKNOWN"}`, "QUOTA_UNKNOWN", 2, "no"},
		{"forbidden for agents", 403, js, `{"error":"never","errorCode":"FORBIDDEN_FOR_AGENT","detail":{"url":"https://c/x"}}`, clierr.ForbiddenForAgent, 3, "never"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { reply(w, c.status, c.kind, c.body) })
			r, err := f.Do(t.Context(), Request{Method: "DELETE", Path: "/x"})
			if c.code == "" {
				if err != nil || string(r.Body) != c.body {
					t.Fatalf("%v, %v", r, err)
				}
				return
			}
			e := clierr.From(err)
			if e.Code != c.code || e.Exit != c.exit || e.Status != c.status || !strings.Contains(e.Message, c.says) {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestApprovalIsDecoded(t *testing.T) {
	f := serve(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 428, "application/json", `{"error":"held","errorCode":"APPROVAL_REQUIRED","detail":{"approvalId":"apr_1","operation":"env.delete","onceOnly":true,"pollUrl":"/v1/approvals/apr_1"}}`)
	})
	_, err := f.Do(t.Context(), Request{Method: "DELETE", Path: "/envs/x"})
	e := clierr.From(err)
	if e.Exit != clierr.ExitApproval || e.Approval == nil || e.Approval.ID != "apr_1" || !e.Approval.OnceOnly {
		t.Errorf("got %+v", e)
	}
}

func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name     string
		method   string
		status   int
		after    string
		attempts int
		pause    time.Duration // exact when the server asked for it
	}{
		{"busy read", "GET", 503, "", 4, 0},
		{"busy read, told when", "GET", 429, "2", 4, 2 * time.Second},
		{"told too long", "GET", 429, "999999999", 4, maxRetryAfter},
		{"bad gateway read", "GET", 502, "", 4, 0},
		{"limited write", "POST", 429, "1", 4, time.Second},
		{"write not taken", "PUT", 503, "1", 4, time.Second},
		{"write that may have been taken", "POST", 503, "", 1, 0},
		{"write through a bad gateway", "POST", 502, "", 1, 0},
		{"server error", "GET", 500, "", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls atomic.Int32
			f := serve(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				reply(w, c.status, "application/json", `{"error":"x"}`)
			})
			if _, err := f.Do(t.Context(), Request{Method: c.method, Path: "/"}); err == nil {
				t.Error("no error")
			}
			if int(calls.Load()) != c.attempts {
				t.Errorf("%d attempts, want %d", calls.Load(), c.attempts)
			}
			for _, p := range f.pauses {
				if c.pause > 0 && p != c.pause {
					t.Errorf("waited %s, want %s", p, c.pause)
				}
			}
		})
	}
}

func TestABrokenReadIsTriedAgain(t *testing.T) {
	var calls atomic.Int32
	f := serve(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			panic(http.ErrAbortHandler)
		}
		reply(w, 200, "application/json", `{}`)
	})
	if _, err := f.Do(t.Context(), Request{Method: "GET", Path: "/"}); err != nil || calls.Load() != 3 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
	calls.Store(0)
	if _, err := f.Do(t.Context(), Request{Method: "DELETE", Path: "/"}); err == nil || calls.Load() > 1 {
		t.Errorf("a write was sent %d times, %v", calls.Load(), err)
	}
}

func TestTheKeyStaysOnItsHost(t *testing.T) {
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Store(true)
		reply(w, 200, "application/json", "{}")
	}))
	defer other.Close()
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		name, method, to string
		status           int
		ok               bool
	}{
		{"another host", "GET", elsewhere, 307, false},
		{"same host", "GET", "/final", 302, true},
		{"a write that would become a read", "POST", "/final", 302, false},
		{"a write that stays one", "POST", "/final", 308, true},
		{"no end", "GET", "/", 302, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, Options{Key: "k"}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/final" {
					if r.Header.Get(HeaderKey) != "k" {
						t.Error("the key was lost on its own host")
					}
					reply(w, 200, "application/json", "{}")
					return
				}
				http.Redirect(w, r, c.to, c.status)
			})
			_, err := f.Do(t.Context(), Request{Method: c.method, Path: "/"})
			if (err == nil) != c.ok {
				t.Errorf("error %v", err)
			}
			if err != nil && clierr.From(err).Code != clierr.BadResponse {
				t.Errorf("code %s", clierr.From(err).Code)
			}
		})
	}
	if leaked.Load() {
		t.Error("the redirect to another host was followed")
	}
}

func TestTimeoutAndInterruption(t *testing.T) {
	release := make(chan struct{})
	f := serve(t, Options{Timeout: 20 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	_, err := f.Do(t.Context(), Request{Method: "GET", Path: "/"})
	if e := clierr.From(err); e.Exit != clierr.ExitTimeout {
		t.Errorf("got %+v", e)
	}
	answer, err := f.Stream(t.Context(), Request{Method: "GET", Path: "/"}, "text/event-stream")
	if err == nil {
		answer.Body.Close()
	}
	if err == nil || clierr.From(err).Exit != clierr.ExitTimeout {
		t.Errorf("stream: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Do(ctx, Request{Method: "GET", Path: "/"}); clierr.From(err).Exit != clierr.ExitInterrupted {
		t.Errorf("got %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	f := dial(t, Options{Base: server.URL})
	_, err := f.Do(t.Context(), Request{Method: "GET", Path: "/"})
	if e := clierr.From(err); e.Code != clierr.Unreachable || len(f.pauses) != 0 {
		t.Errorf("got %+v after %d pauses", e, len(f.pauses))
	}
}

func TestCertificates(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, "application/json", "{}") }))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	get := func(o Options) error {
		o.Base = server.URL
		_, err := dial(t, o).Do(t.Context(), Request{Method: "GET", Path: "/"})
		return err
	}
	err := get(Options{})
	if e := clierr.From(err); e.Code != clierr.Unreachable || !strings.Contains(strings.Join(e.Hints, " "), "--ca-file") {
		t.Errorf("unknown authority: %+v", e)
	}
	if err := get(Options{CAFile: path}); err != nil {
		t.Errorf("--ca-file: %v", err)
	}
	if err := get(Options{Getenv: func(k string) string { return map[string]string{"SSL_CERT_FILE": path}[k] }}); err != nil {
		t.Errorf("SSL_CERT_FILE: %v", err)
	}
	for _, bad := range []string{path + ".missing", os.Args[0]} {
		if _, err := New(Options{CAFile: bad, Getenv: none}); clierr.From(err).Code != clierr.InvalidValue {
			t.Errorf("New with %s: %v", bad, err)
		}
	}
}

func TestEvents(t *testing.T) {
	in := "retry: 1\n\n: comment\n\ndata: {\"a\":1}\n\ndata: x\r\ndata: y\r\n\r\nevent: z\ndata:last\n\ndata: cut off"
	var got []string
	for data, err := range Events(strings.NewReader(in)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(data))
	}
	if want := []string{`{"a":1}`, "x\ny", "last"}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q", got)
	}
	for _, err := range Events(io.MultiReader(strings.NewReader("data: x\n\n"), broken{})) {
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func FuzzEvents(f *testing.F) {
	f.Add("data: x\n\n")
	f.Add("data\n\n:\n\ndata: \ndata:\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		for data, err := range Events(strings.NewReader(s)) {
			if err == nil && len(data) > len(s) {
				t.Error("more data than input")
			}
		}
	})
}
