package native

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/podlog"
	"navix.sh/agentbox/envd/spec/process"
	"navix.sh/agentbox/envd/spec/process/processconnect"
)

// logSource is a container's log that a test writes.
type logSource struct {
	mu     sync.Mutex
	last   podlog.Query
	reader io.ReadCloser
}

func (l *logSource) read(_ context.Context, q podlog.Query) (io.ReadCloser, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = q
	if l.reader == nil {
		return nil, errors.New("no log")
	}
	return l.reader, nil
}

// runSandbox makes a running sandbox on a Pod with two containers.
func (p *testPlatform) runSandbox(id string, claimed time.Time) claim.Sandbox {
	p.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + id, Namespace: p.aliceNS},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "a"}, {Name: "sidecar", Image: "b"}}},
	}
	if err := p.client.Create(p.t.Context(), pod); err != nil {
		p.t.Fatal(err)
	}
	s := claim.Sandbox{
		ID: id, Owner: p.owner(), Env: "demo", Pool: "demo-1c2gi", Pod: pod.Name, Status: claim.StatusRunning,
		Armed: true, ClaimedAt: claimed, StartedAt: claimed, Timeout: time.Minute,
	}
	p.claims.add(s)
	return s
}

func TestLogs(t *testing.T) {
	source := &logSource{}
	p := newPlatform(t, func(o *Options) { o.Logs = source.read })
	claimed := time.Now().Add(-time.Minute)
	p.runSandbox("sb1", claimed)
	line := func(after time.Duration, text string) string {
		return claimed.Add(after).UTC().Format(time.RFC3339Nano) + " " + text + "\n"
	}
	source.reader = io.NopCloser(strings.NewReader(
		line(-time.Second, "of the sandbox before") + line(0, "first") + line(time.Second, "two words") + line(2*time.Second, "bad \xff byte")))
	a := p.must(200, request{method: "GET", path: "/v1/sandboxes/sb1/logs?lines=100", key: p.alice})
	if n := len(a.at("entries").([]any)); n != 3 || a.at("entries.1.log") != "two words" || a.at("entries.0.container") != "sandbox" {
		t.Errorf("%d entries: %s", n, a.raw)
	}
	if strings.Contains(string(a.raw), "before") {
		t.Errorf("the log of another sandbox is in it: %s", a.raw)
	}
	if source.last.Lines != 100 || !source.last.Since.Equal(claimed) || source.last.Container != "sandbox" {
		t.Errorf("asked for %+v", source.last)
	}
	for path, status := range map[string]int{
		"?container=sidecar": 200, "?container=nope": 400, "?source=central": 501, "?lines=0": 200, "?lines=10001": 400,
	} {
		source.reader = io.NopCloser(strings.NewReader(""))
		if a := p.get(p.alice, "/v1/sandboxes/sb1/logs"+path); a.status != status {
			t.Errorf("%s: %d %s, want %d", path, a.status, a.raw, status)
		}
	}
	if a := p.get(p.bob, "/v1/sandboxes/sb1/logs"); a.status != 404 {
		t.Errorf("another tenant reads the log: %d", a.status)
	}
	p.must(202, request{method: "DELETE", path: "/v1/sandboxes/sb1", key: p.alice})
	if a := p.get(p.alice, "/v1/sandboxes/sb1/logs"); a.status != 501 {
		t.Errorf("the log of a sandbox that ended: %d %s", a.status, a.raw)
	}
}

// TestFollowEndsWithTheSandbox holds a followed log to its sandbox: what the Pod writes afterwards is another's.
func TestFollowEndsWithTheSandbox(t *testing.T) {
	source := &logSource{}
	p := newPlatform(t, func(o *Options) { o.Logs = source.read })
	p.runSandbox("sb1", time.Now().Add(-time.Minute))
	end := p.claims.routeTo("sb1", "127.0.0.1:1")
	r, w := io.Pipe()
	source.reader = r
	s := p.open(t, "/v1/sandboxes/sb1/logs?follow=true", p.alice)
	write := func(text string) {
		_, _ = w.Write([]byte(time.Now().UTC().Format(time.RFC3339Nano) + " " + text + "\n")) // fails once the reader is closed
	}
	write("mine")
	if e := s.next(func(map[string]any) bool { return true }); e["log"] != "mine" {
		t.Errorf("followed: %v", e)
	}
	end()
	write("the next one's")
	for line := range s.lines { // until the stream ends, by itself
		t.Errorf("after the sandbox ended: %s", line)
	}
}

// processService answers like envd's.
type processService struct {
	processconnect.UnimplementedProcessHandler
	got   *process.StartRequest
	token string
	exit  int32
	block bool
}

func (s *processService) Start(ctx context.Context, req *connect.Request[process.StartRequest], out *connect.ServerStream[process.StartResponse]) error {
	s.got, s.token = req.Msg, req.Header().Get("X-Access-Token")
	if s.block {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, e := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("out")}}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte("err")}}}},
		{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{ExitCode: s.exit, Exited: true}}},
	} {
		if err := out.Send(&process.StartResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

func TestExecAndReady(t *testing.T) {
	p := newPlatform(t)
	p.runSandbox("sb1", time.Now())
	exec := func(key, command string, seconds int) answer {
		return p.do(request{method: "POST", path: "/v1/sandboxes/sb1/exec", key: key, body: map[string]any{"command": command, "timeoutSeconds": seconds}})
	}
	if a := exec(p.alice, "true", 1); a.status != 409 {
		t.Errorf("exec in a sandbox that takes no traffic: %d %s", a.status, a.raw)
	}
	if a := p.get(p.alice, "/v1/sandboxes/sb1/is_ready"); a.status != 503 || a.at("ready") != false {
		t.Errorf("is_ready without a route: %d %s", a.status, a.raw)
	}
	service := &processService{exit: 3}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(service))
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	server := httptest.NewServer(mux)
	defer server.Close()
	p.claims.routeTo("sb1", server.Listener.Addr().String())

	if a := p.get(p.alice, "/v1/sandboxes/sb1/is_ready"); a.status != 200 || a.at("probes.0.name") != "envd" {
		t.Errorf("is_ready: %d %s", a.status, a.raw)
	}
	a := exec(p.alice, "echo out", 5)
	if a.status != 200 || a.at("exitCode") != 3.0 || a.at("stdout") != "out" || a.at("stderr") != "err" {
		t.Errorf("exec: %d %s", a.status, a.raw)
	}
	if args := service.got.GetProcess().GetArgs(); len(args) == 0 || args[len(args)-1] != "echo out" {
		t.Errorf("envd was asked to run %v", args)
	}
	if a := exec(p.aliceAgent, "echo out", 5); a.status != 428 || a.at("detail.operation") != access.OpSandboxExec {
		t.Errorf("exec by an agent: %d %s", a.status, a.raw)
	}
	service.block = true
	if a := exec(p.alice, "sleep 9", 1); a.status != 504 {
		t.Errorf("a command that does not end: %d %s", a.status, a.raw)
	}
	if a := exec(p.alice, "", 1); a.status != 400 {
		t.Errorf("no command: %d %s", a.status, a.raw)
	}
	server.Close()
	if a := p.get(p.alice, "/v1/sandboxes/sb1/is_ready"); a.status != 503 {
		t.Errorf("is_ready with envd gone: %d %s", a.status, a.raw)
	}
	if a := p.do(request{method: "POST", path: "/v1/sandboxes/sb1/exec-token", key: p.alice}); a.status != 501 {
		t.Errorf("exec-token: %d %s", a.status, a.raw)
	}
}

func TestCreateSandbox(t *testing.T) {
	var faults bytes.Buffer // what an operator is alarmed by
	p := newPlatform(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&faults, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	pool := p.makeEnv(p.alice, "demo")
	p.setPoolStatus(pool)
	create := func(key string, body map[string]any) answer {
		return p.do(request{method: "POST", path: "/v1/sandboxes", key: key, body: body})
	}
	a := create(p.alice, map[string]any{"poolName": pool, "idleTimeout": "10m", "metadata": map[string]any{"a": "b"}})
	if a.status != 201 || a.at("sandbox.idleTimeoutSeconds") != 600.0 || a.at("sandbox.metadata.a") != "b" {
		t.Errorf("create: %d %s", a.status, a.raw)
	}
	etag := a.header.Get("ETag")
	item := "/v1/sandboxes/" + a.at("sandbox.sandboxId").(string)
	put := request{method: "PUT", path: item + "/timeout", key: p.alice, body: map[string]any{"timeout": "5m"}, header: map[string]string{"If-Match": etag}}
	p.must(204, put)
	p.must(412, put)
	if a := p.get(p.alice, item); a.at("sandbox.idleTimeoutSeconds") != 300.0 {
		t.Errorf("after the timeout: %s", a.raw)
	}
	for name, tt := range map[string]struct {
		key    string
		body   map[string]any
		status int
	}{
		"another's pool": {p.bob, map[string]any{"poolName": pool}, 404},
		"no such pool":   {p.alice, map[string]any{"poolName": "nope"}, 404},
		"labels":         {p.alice, map[string]any{"poolName": pool, "labels": map[string]any{"a": "b"}}, 501},
		"agent":          {p.aliceAgent, map[string]any{"poolName": pool}, 428},
		"bad timeout":    {p.alice, map[string]any{"poolName": pool, "idleTimeout": "0s"}, 400},
	} {
		if a := create(tt.key, tt.body); a.status != tt.status {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.raw, tt.status)
		}
	}
	for code, status := range map[claim.Code]int{
		claim.CodeInvalid: 400, claim.CodeNotFound: 404, claim.CodeNoCapacity: 503, claim.CodeQueueFull: 429, claim.CodeQuota: 429,
		claim.CodePullFailed: 500, claim.CodePullTimeout: 504, claim.CodeStartTimeout: 504, claim.CodeStartFailed: 500,
		claim.CodeConflict: 409, claim.CodeCanceled: 503, claim.CodeInternal: 500,
	} {
		p.claims.fail = &claim.Error{Code: code, Message: "what went wrong", Hint: "what to do", RetryAfter: 3 * time.Second, Err: errors.New("secret cause")}
		a := create(p.alice, map[string]any{"poolName": pool})
		if a.status != status || a.at("error") != "what went wrong" || a.header.Get("Retry-After") != "3" || strings.Contains(string(a.raw), "secret cause") {
			t.Errorf("%s: %d %s, want %d", code, a.status, a.raw, status)
		}
		fault := status >= 500 && code != claim.CodeNoCapacity
		if logged := faults.Len() > 0; logged != fault {
			t.Errorf("%s: logged as the platform's fault: %v, want %v: %s", code, logged, fault, &faults)
		}
		faults.Reset()
	}
}
