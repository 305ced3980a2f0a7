package apiserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func get(t *testing.T, ctx context.Context, rt http.RoundTripper, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rt.RoundTrip(r)
}

func TestInProcessAnswers(t *testing.T) {
	rt := newInProcess()
	defer rt.end()
	rt.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("a bug")
		case "/wait":
			<-r.Context().Done()
		}
		w.Header().Set("X-Test", r.URL.Path)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "body")
	})
	for _, url := range []string{"http://x/plain", "http://x/watched?watch=1"} {
		resp, err := get(t, t.Context(), rt, url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != "body" || resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Test") == "" {
			t.Errorf("%s: %d %v %q, %v", url, resp.StatusCode, resp.Header, body, err)
		}
		resp.Body.Close()
	}
	for _, query := range []string{"", "?watch=1"} {
		if resp, err := get(t, t.Context(), rt, "http://x/panic"+query); err == nil || !strings.Contains(err.Error(), "a bug") {
			t.Errorf("a panic: %v, %v", resp, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if resp, err := get(t, ctx, rt, "http://x/wait"+query); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that has gone: %v, %v", resp, err)
		}
	}
}

// TestInProcessEmptyStream: an answer may be over before anybody looks.
func TestInProcessEmptyStream(t *testing.T) {
	rt := newInProcess()
	defer rt.end()
	rt.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for range 20000 {
		resp, err := get(t, t.Context(), rt, "http://x/log")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}

// TestInProcessReaderGone: the handler ends when its reader's context does, even while it writes.
func TestInProcessReaderGone(t *testing.T) {
	rt := newInProcess()
	defer rt.end()
	left := make(chan error, 1)
	rt.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, "nobody reads this")
		left <- err
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := get(t, ctx, rt, "http://x/?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	if err := <-left; err == nil {
		t.Error("the write succeeded")
	}
}

func TestInProcessStreamsEnd(t *testing.T) {
	rt := newInProcess()
	left := make(chan struct{}, 2)
	rt.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		left <- struct{}{}
	})
	closed, err := get(t, t.Context(), rt, "http://x/?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	closed.Body.Close()
	<-left
	stopped, err := get(t, t.Context(), rt, "http://x/?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	rt.end()
	<-left
	if _, err := io.ReadAll(stopped.Body); err != nil {
		t.Errorf("the stream of a server that stops: %v", err)
	}
	stopped.Body.Close()
	if _, err := get(t, t.Context(), rt, "http://x/"); !errors.Is(err, errStopped) {
		t.Errorf("a stopped server: %v", err)
	}
}
