package command

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"navix.sh/agentbox/envd/spec/filesystem"
	spec "navix.sh/agentbox/envd/spec/process"
	"navix.sh/agentbox/envd/spec/process/processconnect"
)

func TestNothingRunsBeforeInit(t *testing.T) {
	d := start(t, []string{"ENVD_INIT_TOKEN=platform", "ENVD_REQUIRE_INIT=true"})
	for _, route := range []string{"GET /files?path=/etc/passwd", "POST /files?path=/x", "POST /files/compose", "GET /envs"} {
		method, path, _ := strings.Cut(route, " ")
		if status, _, body := d.call(t, method, path, ""); status != 503 || !strings.Contains(body, `"message":"sandbox is not ready"`) {
			t.Errorf("%s: %d %s", route, status, body)
		}
	}
	if status, _, body := d.call(t, "POST", "/process.Process/List", "{}", "Content-Type", "application/json"); status != 503 || !strings.Contains(body, `"code":"unavailable"`) {
		t.Errorf("a unary call: %d %s", status, body)
	}
	if _, err := run(within(t), d.processes(), connect.NewRequest(shell("touch /never"))); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a stream: %v", err)
	}
	if status, header, _ := d.call(t, "GET", "/health", ""); status != 204 || header.Get("Cache-Control") != "no-store" {
		t.Errorf("health: %d %v", status, header)
	}
	if status, _, body := d.call(t, "GET", "/state", "", "X-Init-Token", "platform"); status != 200 || body != `{"armed":false,"sandboxId":"","everUsed":false}`+"\n" {
		t.Errorf("state: %d %s", status, body)
	}
	for _, token := range []string{"", "Platform", "platform2"} {
		if status, _, _ := d.call(t, "POST", "/init", "{}", "X-Init-Token", token); status != 401 {
			t.Errorf("init with the token %q: %d", token, status)
		}
		if status, _, _ := d.call(t, "GET", "/state", "", "X-Init-Token", token); status != 401 {
			t.Errorf("state with the token %q: %d", token, status)
		}
	}
	status, header, _ := d.call(t, "POST", "/init", `{"sandboxId":"isbx","accessToken":"client","timestamp":"2020-01-01T00:00:00Z"}`, "X-Init-Token", "platform")
	if status != 204 || header.Get("X-Envd-Version") != "0.6.13" {
		t.Fatalf("init: %d %v", status, header)
	}
	for _, test := range []struct{ what, token string }{{"a wrong", "x"}, {"no", ""}} {
		status, _, body := d.call(t, "POST", "/process.Process/List", "{}", "Content-Type", "application/json", "X-Access-Token", test.token)
		if status != 401 || !strings.Contains(body, `"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"`) {
			t.Errorf("with %s token: %d %s", test.what, status, body)
		}
	}
	if status, _, body := d.call(t, "GET", "/state", "", "X-Init-Token", "platform"); status != 200 || body != `{"armed":true,"sandboxId":"isbx","everUsed":false}`+"\n" {
		t.Errorf("refused requests are no use: %d %s", status, body)
	}
	if status, _, _ := d.call(t, "GET", "/metrics", "", "X-Access-Token", "client"); status != 200 {
		t.Errorf("metrics: %d", status)
	}
	if status, _, body := d.call(t, "GET", "/envs", "", "X-Access-Token", "client"); status != 200 || body != `{"E2B_SANDBOX":"true","E2B_SANDBOX_ID":"isbx"}`+"\n" {
		t.Errorf("envs: %d %s", status, body)
	}
	if _, _, body := d.call(t, "GET", "/state", "", "X-Init-Token", "platform"); !strings.Contains(body, `"everUsed":true`) {
		t.Errorf("a served request is use: %s", body)
	}
}

// TestAccessMatrix asks every route without a token, with a wrong one and with the right one.
func TestAccessMatrix(t *testing.T) {
	d := start(t, nil)
	if status, _, _ := d.call(t, "POST", "/init", `{"accessToken":"client"}`); status != 204 {
		t.Fatal("the first init needs no proof where no init token is configured")
	}
	for route, open := range map[string]bool{
		"GET /health": true, "POST /health": false, "GET /metrics": false, "GET /envs": false, "GET /state": false, "GET /nowhere": false,
		"POST /init": false, "GET /init": false, "GET /files": false, "POST /files": false, "GET /files/": false, "POST /files/compose": false,
		"POST /process.Process/List": false, "POST /process.Process/Start": false, "POST /filesystem.Filesystem/Stat": false,
		"POST /freeze": false, "GET //health": false, "GET /./files": false, "OPTIONS /files": false,
	} {
		method, path, _ := strings.Cut(route, " ")
		for _, token := range []string{"", "wrong"} {
			status, _, body := d.call(t, method, path, "", "X-Access-Token", token)
			if open != (status == 204) || !open && status != 401 {
				t.Errorf("%s with %q: %d %s", route, token, status, body)
			}
		}
		if route == "POST /init" {
			continue // it would clear the token that the other routes are asked with
		}
		if status, _, body := d.call(t, method, path, "", "X-Access-Token", "client"); status == 401 {
			t.Errorf("%s with the right token: %s", route, body)
		}
	}
}

func TestInitWithoutAnInitToken(t *testing.T) {
	d := start(t, nil)
	for _, step := range []struct {
		body   string
		header []string
		status int
	}{
		{`{"accessToken":"one"}`, nil, 204},
		{`{"accessToken":"two"}`, nil, 401},
		{`{}`, nil, 401},
		{`{"accessToken":"one","envVars":{"A":"1"}}`, nil, 204},
		{`{"accessToken":"two"}`, []string{"X-Access-Token", "one"}, 204},
		{``, []string{"X-Access-Token", "two"}, 204}, // an empty body clears everything
		{`{"defaultUser":"no-such-user"}`, nil, 400},
		{`{"envVars":{"A=":"1"}}`, nil, 400},
		{`{"caBundle":"nonsense"}`, nil, 400},
		{`{"volumeMounts":[{"nfs_target":"x","path":"/y"}]}`, nil, 501},
		{`{"hyperloopIP":"1.2.3.4"}`, nil, 501},
		{`{"envVars":7}`, nil, 400},
		{`{`, nil, 400},
	} {
		if status, _, body := d.call(t, "POST", "/init", step.body, step.header...); status != step.status {
			t.Errorf("%s %v: %d %s, want %d", step.body, step.header, status, body, step.status)
		}
	}
	if status, _, body := d.call(t, "POST", "/freeze", ""); status != 501 || !strings.Contains(body, "not implemented") {
		t.Errorf("freeze: %d %s", status, body)
	}
}

func TestCABundle(t *testing.T) {
	d := start(t, nil)
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	body, err := json.Marshal(map[string]any{"caBundle": bundle, "envVars": map[string]string{"GIT_SSL_CAINFO": "mine"}})
	if err != nil {
		t.Fatal(err)
	}
	if status, _, text := d.call(t, "POST", "/init", string(body)); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	out := mustRun(t, d.processes(), shell(`cat "$SSL_CERT_FILE"; echo "git $GIT_SSL_CAINFO"`)).stdout
	if !strings.Contains(out, bundle) || !strings.HasSuffix(out, "git mine\n") {
		t.Errorf("got %d bytes ending in %q", len(out), out[max(0, len(out)-40):])
	}
	if status, _, _ := d.call(t, "POST", "/init", "{}"); status != 204 {
		t.Fatal("second init failed")
	}
	if out := mustRun(t, d.processes(), shell(`echo "$SSL_CERT_FILE"`)).stdout; out != "\n" {
		t.Errorf("the bundle is still announced: %s", out)
	}
}

func TestCrossOrigin(t *testing.T) {
	d := start(t, nil)
	status, header, _ := d.call(t, "OPTIONS", "/process.Process/Start", "", "Origin", "https://x", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-access-token")
	if status != 204 || header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("preflight: %d %v", status, header)
	}
	_, header, _ = d.call(t, "GET", "/health", "", "Origin", "https://x")
	if header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(header.Get("Vary"), "Origin") {
		t.Errorf("request: %v", header)
	}
}

func TestMalformedFrames(t *testing.T) {
	d := start(t, nil)
	frame := func(flags byte, length uint32, body string) []byte {
		head := make([]byte, 5)
		head[0] = flags
		binary.BigEndian.PutUint32(head[1:], length)
		return append(head, body...)
	}
	for name, body := range map[string][]byte{
		"empty":              {},
		"half a head":        {0, 0},
		"short":              frame(0, 100, "{}"),
		"huge":               frame(0, 1<<31, "{}"),
		"unknown flags":      frame(0x7f, 2, "{}"),
		"compressed nothing": frame(1, 2, "{}"),
		"not JSON":           frame(0, 3, "abc"),
		"wrong type":         frame(0, 15, `{"process":"x"}`),
		"two messages":       append(frame(0, 2, "{}"), frame(0, 2, "{}")...),
		"end only":           frame(2, 2, "{}"),
	} {
		res, err := d.client.Post(d.URL+"/process.Process/Start", "application/connect+json", bytes.NewReader(body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var text bytes.Buffer
		_, err = text.ReadFrom(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !strings.Contains(text.String(), `"error"`) {
			t.Errorf("%s: %d %q %v", name, res.StatusCode, text.String(), err)
		}
	}
	if status, _, _ := d.call(t, "GET", "/health", ""); status != 204 {
		t.Error("envd did not survive")
	}
}

// inputReader reads a client stream to its end and runs nothing.
type inputReader struct {
	processconnect.UnimplementedProcessHandler
}

func (inputReader) StreamInput(_ context.Context, in *connect.ClientStream[spec.StreamInputRequest]) (*connect.Response[spec.StreamInputResponse], error) {
	for in.Receive() {
	}
	return connect.NewResponse(&spec.StreamInputResponse{}), in.Err()
}

func FuzzFrames(f *testing.F) {
	valid := []byte{0, 0, 0, 0, 2, '{', '}'}
	f.Add(valid, true)
	f.Add(append(valid, valid...), true)
	f.Add([]byte{0, 0, 0, 0, 4, 10, 2, 10, 0}, false)
	f.Add([]byte{1, 0, 0, 0, 2, 0x1f, 0x8b}, true)
	f.Add([]byte{2, 0xff, 0xff, 0xff, 0xff}, false)
	_, handler := processconnect.NewProcessHandler(inputReader{}, connect.WithReadMaxBytes(1<<20))
	f.Fuzz(func(t *testing.T, body []byte, asJSON bool) {
		codec := "proto"
		if asJSON {
			codec = "json"
		}
		req := httptest.NewRequest("POST", "/process.Process/StreamInput", bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/connect+"+codec)
		res := httptest.NewRecorder()
		handler.ServeHTTP(res, req)
		if answer := res.Body.Bytes(); res.Code != 200 || len(answer) < 5 {
			t.Errorf("got %d %q: the answer to any frames is 200 and a frame", res.Code, answer)
		}
	})
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "envd.sock")
	start(t, []string{"ENVD_PORT=tcp://10.0.0.1:80", "ENVD_SOCKET=" + socket}) // a Service called envd sets the former
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	var status int
	eventually(t, "the socket", func() bool {
		res, err := (&http.Client{Transport: transport}).Get("http://sandbox/health")
		if err != nil {
			return false
		}
		res.Body.Close()
		status = res.StatusCode
		return true
	})
	if status != 204 {
		t.Errorf("got %d", status)
	}
}

func TestUsage(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--port", "70000"}, 2, "0 to 65535"},
		{[]string{"--port", "x"}, 2, "invalid value"},
		{[]string{"serve"}, 2, `unexpected argument "serve"`},
		{[]string{"install"}, 2, "one path"},
		{[]string{"--init-token-file", "/none"}, 2, "no such file"},
		{[]string{"--init-token-file", token}, 2, "is empty"},
		{[]string{"--help"}, 0, "usage: envd"},
	} {
		var out, errs bytes.Buffer
		if code := Run(test.args, &out, &errs); code != test.code || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%v: %d %s", test.args, code, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := Run([]string{"version"}, &out, &errs); code != 0 || out.String() != "0.6.13\n" {
		t.Errorf("version: %d %s", code, out.String())
	}
}

func TestInitTokenFileIsReadOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(t, nil, "--init-token-file", file)
	if exists(file) {
		t.Error("the file is still there")
	}
	if status, _, _ := d.call(t, "POST", "/init", "{}", "X-Init-Token", "secret"); status != 204 {
		t.Errorf("init: %d", status)
	}
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	var errs bytes.Buffer
	if code := Run([]string{"install", filepath.Join(dir, "bin/envd")}, &errs, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	copied, err := os.ReadFile(filepath.Join(dir, "bin/envd"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil || !bytes.Equal(copied, self) {
		t.Errorf("the copy differs: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "bin/envd")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, "bin")); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	if code := Run([]string{"install", dir}, &errs, &errs); code != 0 || !exists(filepath.Join(dir, "envd")) {
		t.Errorf("into a directory: %d %s", code, errs.String())
	}
}

// TestConcurrentUse mixes everything, for the race detector.
func TestConcurrentUse(t *testing.T) {
	d := start(t, nil)
	dir := t.TempDir()
	errs := make(chan error)
	const clients = 16
	for i := range clients {
		go func() {
			errs <- func() error {
				o, err := run(within(t), d.processes(), connect.NewRequest(shell(fmt.Sprintf("echo %d", i))))
				if err != nil {
					return err
				}
				if o.stdout != fmt.Sprintf("%d\n", i) || o.ends != 1 {
					return fmt.Errorf("command %d said %+v", i, o)
				}
				_, err = d.filesystem().MakeDir(within(t), connect.NewRequest(&filesystem.MakeDirRequest{Path: fmt.Sprintf("%s/a/b/%d", dir, i)}))
				return err
			}()
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	list, err := d.processes().List(within(t), connect.NewRequest(&spec.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

// heldBody is a request's body that comes when the test says so. asked is closed once envd wants to read it.
type heldBody struct {
	asked, rest chan struct{}
	once        sync.Once
	text        *strings.Reader
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.asked) })
	<-b.rest
	return b.text.Read(p)
}

// hold sends the header of an RPC and returns when envd waits for its body, with a function that sends that and returns
// the status.
func (d *daemon) hold(t *testing.T, token string) (finish func() int) {
	t.Helper()
	body := &heldBody{asked: make(chan struct{}), rest: make(chan struct{}), text: strings.NewReader("{}")}
	r, err := http.NewRequestWithContext(within(t), http.MethodPost, d.URL+"/process.Process/List", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Expect", "100-continue") // sent when the server reads
	if token != "" {
		r.Header.Set("X-Access-Token", token)
	}
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	status := make(chan int, 1)
	go func() {
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-body.asked
	return func() int { close(body.rest); return <-status }
}

// TestTokenChangesUnderARequest: what came in with a former token, or before there was one, does nothing after the
// change, and has counted as use where it could have done something before it.
func TestTokenChangesUnderARequest(t *testing.T) {
	d := start(t, []string{"ENVD_INIT_TOKEN=platform", "ENVD_REQUIRE_INIT=true"})
	arm := func(token string) {
		t.Helper()
		if status, _, body := d.call(t, "POST", "/init", `{"accessToken":"`+token+`"}`, "X-Init-Token", "platform"); status != 204 {
			t.Fatalf("init: %d %s", status, body)
		}
	}
	used := func() bool {
		_, _, state := d.call(t, "GET", "/state", "", "X-Init-Token", "platform")
		return strings.Contains(state, `"everUsed":true`)
	}
	early := d.hold(t, "")
	arm("first")
	if used() {
		t.Error("what came before the sandbox was armed is no use")
	}
	if status := early(); status != http.StatusUnauthorized {
		t.Errorf("a request from before there was a token: %d", status)
	}
	former := d.hold(t, "first")
	arm("second")
	if !used() {
		t.Error("a request that was let in does not count as use")
	}
	if status := former(); status != http.StatusUnauthorized {
		t.Errorf("a request with the former token: %d", status)
	}
	if status := d.hold(t, "second")(); status != http.StatusOK {
		t.Errorf("a request with the token: %d", status)
	}
}
