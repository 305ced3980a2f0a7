package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/controller/podlog"
)

func TestLogs(t *testing.T) {
	const text = "2026-05-01T00:00:00.9Z the sandbox before\n2026-05-01T00:00:02.5Z first\n2026-05-01T00:00:03Z \x1b[1msecond\x1b[0m\nnot a line of the log\n2026-05-01T00:00:04Z\n2026-05-01T00:00:05Z fourth\n"
	var since time.Time
	f := newFixture(t, func(o *Options) {
		o.Logs = func(_ context.Context, q podlog.Query) (io.ReadCloser, error) {
			since = q.Since
			return io.NopCloser(strings.NewReader(text)), nil
		}
	})
	sb := f.create(aliceKey, `{"templateID":"default"}`)
	at := func(second int64) int64 { return time.Date(2026, 5, 1, 0, 0, int(second), 0, time.UTC).UnixMilli() }
	for _, tc := range []struct{ query, want string }{
		{"", "first,\x1b[1msecond\x1b[0m,,fourth"},
		{"limit=2", "first,\x1b[1msecond\x1b[0m"},
		{"limit=0", ""},
		{"direction=backward&limit=2", "fourth,"},
		{fmt.Sprintf("cursor=%d", at(4)), ",fourth"},
		{fmt.Sprintf("cursor=%d&direction=backward", at(4)), "\x1b[1msecond\x1b[0m,first"},
		{"search=fo", "fourth"},
		{"level=info&search=fir", "first"},
		{"level=warn", ""},
	} {
		a := f.call(aliceKey, "GET", "/v2/sandboxes/"+sb.SandboxID+"/logs?"+tc.query, "")
		var body logsV2Body
		a.decode(t, &body)
		var got []string
		for _, e := range body.Logs {
			got = append(got, e.Message)
		}
		if strings.Join(got, ",") != tc.want {
			t.Errorf("%s: %q; want %q", tc.query, strings.Join(got, ","), tc.want)
		}
	}
	if claimed := time.Date(2026, 5, 1, 0, 0, 1, 0, time.UTC); !since.Equal(claimed) {
		t.Errorf("read from %s; want from the claim at %s: a Pod served others before", since, claimed)
	}
	a := f.call(aliceKey, "GET", "/sandboxes/"+sb.SandboxID+"/logs?start=0&limit=1", "")
	var body logsV1Body
	a.decode(t, &body)
	var line struct{ Level, Logger, Message string }
	if err := json.Unmarshal([]byte(body.Logs[0].Line), &line); err != nil || line.Level != "info" || line.Logger == "" || line.Message != "first" {
		t.Errorf("%s: %v", a.Body, err)
	}
	for _, bad := range []string{"limit=1001", "direction=up", "level=loud", "start=-1", "cursor=1"} {
		if a := f.call(aliceKey, "GET", "/sandboxes/"+sb.SandboxID+"/logs?"+bad, ""); a.Status != 400 {
			t.Errorf("%s: %d %s", bad, a.Status, a.Body)
		}
	}
}

// A line may be of any length, and the newest lines are those at the end of a log of any length.
func TestLongLogs(t *testing.T) {
	line := func(second int, text string) string {
		return time.Date(2026, 5, 1, 0, 0, second, 0, time.UTC).Format(time.RFC3339Nano) + " " + text + "\n"
	}
	long := strings.Repeat("x", maxLogLine)
	text := line(2, "first") + line(3, long)
	for i := range 40 {
		text += line(4+i%10, long[:maxLogLine-100])
	}
	text += line(20, "last") + strings.TrimSuffix(line(21, "without an end"), "\n")
	f := newFixture(t, func(o *Options) {
		o.Logs = func(context.Context, podlog.Query) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text)), nil
		}
	})
	sb := f.create(aliceKey, `{"templateID":"default"}`)
	read := func(query string) []logEntryBody {
		t.Helper()
		a := f.call(aliceKey, "GET", "/v2/sandboxes/"+sb.SandboxID+"/logs?"+query, "")
		if a.Status != 200 {
			t.Fatalf("%s: %d %.200s", query, a.Status, a.Body)
		}
		if len(a.Body) > maxLogBytes+2*maxLogLine {
			t.Errorf("%s: an answer of %d bytes", query, len(a.Body))
		}
		var body logsV2Body
		a.decode(t, &body)
		return body.Logs
	}
	all := read("")
	if len(all) < 30 || all[0].Message != "first" || len(all[1].Message) > maxLogLine+len(logLineCut) || !strings.HasSuffix(all[1].Message, "x"+logLineCut) {
		t.Errorf("forward: %d lines, from %.40q", len(all), all[0].Message)
	}
	newest := read("direction=backward&search=")
	if len(newest) < 30 || newest[0].Message != "without an end" || newest[1].Message != "last" {
		t.Errorf("backward: %d lines, from %.40q", len(newest), newest[0].Message)
	}
	if found := read("search=last"); len(found) != 1 {
		t.Errorf("a search behind the first 8 MiB found %d lines", len(found))
	}
}

func TestLogsWithoutAReader(t *testing.T) {
	f := newFixture(t, nil)
	sb := f.create(aliceKey, `{"templateID":"default"}`)
	if a := f.call(aliceKey, "GET", "/sandboxes/"+sb.SandboxID+"/logs", ""); a.Status != 501 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestMetrics(t *testing.T) {
	f := newFixture(t, nil)
	sb := f.create(aliceKey, `{"templateID":"default"}`)
	foreign := f.create(bobKey, `{"templateID":"blue"}`)
	path := "/sandboxes/" + sb.SandboxID + "/metrics"

	if a := f.call(aliceKey, "GET", path, ""); a.Status != 200 || string(a.Body) != "[]" {
		t.Errorf("without a route: %d %s", a.Status, a.Body)
	}
	now := time.Now().Unix()
	envd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Header.Get("X-Access-Token") != "token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"ts":%d,"cpu_count":2,"cpu_used_pct":12.5,"mem_total":100,"mem_used":50,"mem_cache":7,"disk_used":3,"disk_total":9}`, now)
	}))
	t.Cleanup(envd.Close)
	f.claims.dial = func(ctx context.Context, port int) (net.Conn, error) {
		if port != envdPort {
			return nil, fmt.Errorf("port %d", port)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", envd.Listener.Addr().String())
	}
	var points []metricBody
	f.call(aliceKey, "GET", path, "").decode(t, &points)
	want := metricBody{Timestamp: time.Unix(now, 0).UTC(), TimestampUnix: now, CPUCount: 2, CPUUsedPct: 12.5, MemUsed: 50, MemTotal: 100, MemCache: 7, DiskUsed: 3, DiskTotal: 9}
	if len(points) != 1 || points[0] != want {
		t.Errorf("%+v", points)
	}
	if a := f.call(aliceKey, "GET", path+"?start=1&end=2", ""); string(a.Body) != "[]" {
		t.Errorf("a range before the sandbox: %s", a.Body)
	}
	for query, points := range map[string]int{
		fmt.Sprintf("?end=%d", now-5): 1, fmt.Sprintf("?start=%d", now+5): 1, fmt.Sprintf("?end=%d", now-90): 0, fmt.Sprintf("?start=%d", now+90): 0,
	} {
		var got []metricBody
		if f.call(aliceKey, "GET", path+query, "").decode(t, &got); len(got) != points {
			t.Errorf("%s: %+v; want %d points", query, got, points)
		}
	}
	for _, bad := range []string{"start=2&end=1", "start=x", "begin=1", "start=1&start=2"} {
		if a := f.call(aliceKey, "GET", path+"?"+bad, ""); a.Status != 400 {
			t.Errorf("%s: %d %s", bad, a.Status, a.Body)
		}
	}
	var many metricsBody
	f.call(aliceKey, "GET", "/sandboxes/metrics?sandbox_ids="+sb.SandboxID+",inone,"+foreign.SandboxID, "").decode(t, &many)
	if len(many.Sandboxes) != 1 || many.Sandboxes[sb.SandboxID] != want {
		t.Errorf("%+v", many)
	}
	if a := f.call(aliceKey, "GET", "/sandboxes/metrics", ""); a.Status != 400 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	envd.Close()
	if a := f.call(aliceKey, "GET", path, ""); a.Status != 502 {
		t.Errorf("with envd gone: %d %s", a.Status, a.Body)
	}
}

func TestTemplates(t *testing.T) {
	f := newFixture(t, nil)
	f.create(aliceKey, `{"templateID":"default"}`)
	var list []templateBody
	f.call(aliceKey, "GET", "/templates?teamID=x", "").decode(t, &list)
	if len(list) != 2 || list[0].TemplateID != "default" || list[1].TemplateID != "patient" {
		t.Fatalf("%+v", list)
	}
	d := list[0]
	if d.CPUCount != 2 || d.MemoryMB != 4096 || d.SpawnCount != 1 || d.LastSpawnedAt == nil || strings.Join(d.Names, " ") != "default base code-interpreter-v1" {
		t.Errorf("%+v", d)
	}
	a := f.call(aliceKey, "GET", "/v2/templates?limit=1", "")
	token := a.Header.Get("X-Next-Token")
	a = f.call(aliceKey, "GET", "/v2/templates?limit=1&nextToken="+token, "")
	a.decode(t, &list)
	if len(list) != 1 || list[0].TemplateID != "patient" || a.Header.Get("X-Next-Token") != "" {
		t.Errorf("%s %v", a.Body, a.Header)
	}
	for path, status := range map[string]int{
		"/templates/default": 200, "/templates/base": 200, "/templates/local%3A%3Adefault": 200, "/templates/mars%3A%3Adefault": 404,
		"/templates/blue": 404, "/templates/nope": 404, "/templates/team%2Fdefault": 404,
		"/templates/aliases/base": 200, "/templates/aliases/default": 200, "/templates/aliases/blue": 404, "/templates/aliases/a%2Fb": 404,
	} {
		if a := f.call(aliceKey, "GET", path, ""); a.Status != status {
			t.Errorf("%s: %d %s; want %d", path, a.Status, a.Body, status)
		}
	}
	foreign, missing := f.call(aliceKey, "GET", "/templates/blue", ""), f.call(aliceKey, "GET", "/templates/bleu", "")
	if strings.ReplaceAll(string(foreign.Body), "blue", "bleu") != string(missing.Body) {
		t.Errorf("a foreign template reads %s, a missing one %s", foreign.Body, missing.Body)
	}
}
