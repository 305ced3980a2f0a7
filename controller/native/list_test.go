package native

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/claim"
)

func (p *testPlatform) owner() claim.Owner {
	return claim.Owner{Namespace: p.aliceNS, Team: fmt.Sprintf("red%d", p.n), User: "alice"}
}

func TestSandboxListPagesAndFilters(t *testing.T) {
	p := newPlatform(t)
	began := time.Now().Add(-time.Hour)
	for i := range 45 {
		s := claim.Sandbox{ID: fmt.Sprintf("sb%02d", i), Owner: p.owner(), Pool: "pool-a", Pod: "p", Status: claim.StatusRunning, ClaimedAt: began.Add(time.Duration(i) * time.Second), StartedAt: began}
		if i%9 == 0 {
			s.Status, s.TerminatedAt = claim.StatusFailed, began.Add(time.Minute)
		}
		p.claims.add(s)
	}
	p.claims.add(claim.Sandbox{ID: "foreign", Owner: claim.Owner{Namespace: p.bobNS}, Pool: "pool-a", Status: claim.StatusRunning, ClaimedAt: began})
	for _, tt := range []struct {
		query string
		rows  int
		total float64
		first string
	}{
		{"", 20, 45, "sb44"},
		{"?limit=1000", 45, 45, "sb44"},
		{"?limit=10&offset=40", 5, 45, "sb04"},
		{"?offset=1000", 0, 45, ""},
		{"?status=Failed", 5, 5, "sb36"},
		{"?status=Canceled", 0, 0, ""},
		{"?sandboxId=SB1&limit=100", 10, 10, "sb19"},
		{"?sandboxId=sb1&status=Failed", 1, 1, "sb18"},
		{"?poolName=pool-b", 0, 0, ""},
	} {
		a := p.must(200, request{method: "GET", path: "/v1/sandboxes" + tt.query, key: p.alice})
		rows := a.at("items").([]any)
		first, _ := a.at("items.0.sandboxId").(string)
		if len(rows) != tt.rows || a.at("total") != tt.total || first != tt.first {
			t.Errorf("%q: %d rows of %v from %q, want %d of %v from %q", tt.query, len(rows), a.at("total"), first, tt.rows, tt.total, tt.first)
		}
	}
	if all := p.get(p.admin, "/v1/sandboxes?limit=1000"); all.at("total") != 46.0 {
		t.Errorf("an admin sees %v, want 46", all.at("total"))
	}
	if s := p.get(p.alice, "/v1/statistics/sandboxes"); s.at("statistics.total") != 45.0 || s.at("statistics.byStatus.Failed") != 5.0 {
		t.Errorf("statistics: %s", s.raw)
	}
	if s := p.get(p.admin, "/v1/admin/statistics/sandboxes"); s.at("statistics.total") != 46.0 || valueAt(s.at("statistics.byNamespace"), p.bobNS) != 1.0 {
		t.Errorf("admin statistics: %s", s.raw)
	}
	if s := p.get(p.alice, "/v1/sandboxes/foreign"); s.status != 404 {
		t.Errorf("a foreign sandbox: %d", s.status)
	}
}

// stream is an open event stream.
type stream struct {
	t      *testing.T
	lines  chan string
	cancel context.CancelFunc
}

// open opens a stream over a real connection.
func (p *testPlatform) open(t *testing.T, path, key string) *stream {
	t.Helper()
	server := httptest.NewServer(p.h)
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("AGENTBOX-API-KEY", key)
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %d %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	s := &stream{t: t, lines: make(chan string, 100), cancel: cancel}
	go func() {
		defer close(s.lines)
		scanner := bufio.NewScanner(resp.Body)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			if data, ok := strings.CutPrefix(scanner.Text(), "data: "); ok {
				s.lines <- data
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		resp.Body.Close()
		for range s.lines { // until the reader has ended
		}
		server.Close() // returns when no handler runs any more
	})
	return s
}

// next waits for the next event that is one of the wanted, and returns it.
func (s *stream) next(want func(map[string]any) bool) map[string]any {
	s.t.Helper()
	deadline := time.NewTimer(15 * time.Second)
	defer deadline.Stop()
	for {
		select {
		case line, open := <-s.lines:
			if !open {
				s.t.Fatal("the stream ended")
			}
			var e map[string]any
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				s.t.Fatalf("%q: %v", line, err)
			}
			if want(e) {
				return e
			}
		case <-deadline.C:
			s.t.Fatal("the event never came")
		}
	}
}

func event(kind, name string) func(map[string]any) bool {
	return func(e map[string]any) bool {
		return e["type"] == kind && (name == "" || valueAt(e["object"], "name") == name)
	}
}

func TestStreamsEndWhenStopping(t *testing.T) {
	stopping := make(chan struct{})
	p := newPlatform(t, func(o *Options) { o.Stopping = stopping })
	s := p.open(t, "/v1/sandboxes?watch=true", p.alice)
	s.next(event("BOOKMARK", ""))
	close(stopping)
	for range s.lines { // until it ends, by itself
	}
}

func TestWatch(t *testing.T) {
	p := newPlatform(t)
	p.makeEnv(p.alice, "first")
	s := p.open(t, "/v1/envs?watch=true&name=first", p.alice)
	s.next(event("ADDED", "first"))
	s.next(event("BOOKMARK", ""))
	// Another env, which the filter leaves out, is not told of; the second that it lets through is.
	p.makeEnv(p.alice, "other")
	p.makeEnv(p.alice, "first-too")
	if e := s.next(func(map[string]any) bool { return true }); !event("ADDED", "first-too")(e) {
		t.Errorf("next event: %v", e)
	}
	p.must(202, request{method: "DELETE", path: "/v1/envs/first-too", key: p.alice})
	s.next(event("DELETED", "first-too"))

	pools := p.open(t, "/v1/envs/first/sandboxpools?watch=true", p.alice)
	pools.next(event("BOOKMARK", ""))
	p.must(200, request{method: "PUT", path: "/v1/envs/first/sandboxpools/first-1c2gi", key: p.alice, body: sized("1", "2Gi", "replicas", 9)})
	if e := pools.next(event("MODIFIED", "first-1c2gi")); valueAt(e["object"], "spec.replicas") != 9.0 {
		t.Errorf("the changed pool: %v", e)
	}

	sandboxes := p.open(t, "/v1/sandboxes?watch=true&status=Running", p.alice)
	sandboxes.next(event("BOOKMARK", ""))
	p.claims.add(claim.Sandbox{ID: "sb1", Owner: p.owner(), Pool: "x", Status: claim.StatusRunning, ClaimedAt: time.Now(), StartedAt: time.Now()})
	sandboxes.next(event("ADDED", ""))
	p.must(202, request{method: "DELETE", path: "/v1/sandboxes/sb1", key: p.alice})
	sandboxes.next(event("DELETED", ""))

	// A stream ends with its key.
	for _, k := range p.keys.List() {
		if k.User == "alice" && !k.Agent && !k.Expired(time.Now()) {
			if err := p.keys.Revoke(t.Context(), k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range s.lines { // until it ends, by itself
	}
	if a := p.get(p.admin, "/v1/envs?watch=true&limit=5"); a.status != 400 {
		t.Errorf("watch with limit: %d %s", a.status, a.raw)
	}
}

func TestEvents(t *testing.T) {
	p := newPlatform(t)
	pool := p.makeEnv(p.alice, "demo")
	at := time.Now().Truncate(time.Second)
	for i, e := range []struct{ kind, name, reason string }{
		{"SandboxEnv", "demo", "Ready"}, {"SandboxPool", pool, "ScalingUp"}, {"Pod", pool + "-abcde", "Failed"},
		{"SandboxEnv", "other", "Ready"}, {"Pod", "demo-1c2gi-x-abcde", "Failed"}, {"Secret", "demo", "Odd"},
	} {
		ev := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("e%d", i), Namespace: p.aliceNS},
			InvolvedObject: corev1.ObjectReference{Kind: e.kind, Name: e.name, Namespace: p.aliceNS},
			Reason:         e.reason, Message: "m", Type: "Normal", Count: 1,
			FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at.Add(time.Duration(i) * time.Second)),
		}
		if e.reason == "Failed" {
			ev.Type = "Warning"
		}
		if err := p.client.Create(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	a := p.must(200, request{method: "GET", path: "/v1/envs/demo/events", key: p.alice})
	if a.at("total") != 3.0 || a.at("items.0.object") != "pod/"+pool+"-abcde" || a.at("items.2.object") != "sandboxenv/demo" {
		t.Errorf("events: %s", a.raw)
	}
	if w := p.get(p.alice, "/v1/envs/demo/events?type=Warning"); w.at("total") != 1.0 {
		t.Errorf("warnings: %s", w.raw)
	}
}
