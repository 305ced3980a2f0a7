package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"navix.sh/agentbox/controller/claim"
)

// echo answers with the request as the sandbox sees it.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Proto", r.Proto)
	_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "target": r.RequestURI, "host": r.Host, "header": r.Header, "body": string(body)})
})

type echoed struct {
	Method, Target, Host, Body string
	Header                     http.Header
}

func do(t *testing.T, r *http.Request) (int, []byte, http.Header) {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body, response.Header
}

func TestForwardsUntouched(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", 8080, echo, nil)
	for _, target := range []string{"/", "/a%2Fb/../c/./d?x=1&y=%20;z", "/a?", "//evil.test/x", "/%7Euser/caf%C3%A9+x", "/a;b?=&&c=%zz", "/\"quoted\"?q=\"<>"} {
		t.Run(target, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 8080-iabc.box.test\r\nX-Forwarded-For: 1.2.3.4\r\nX-Api-Key: %s\r\nX-Access-Token: envd-token\r\n"+
				"E2b-Traffic-Access-Token: s\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", target, ownerKey)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			var got echoed
			if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
				t.Fatalf("%s: %v", response.Status, err)
			}
			if got.Target != target || got.Host != "8080-iabc.box.test" || got.Body != "hello" || got.Method != "POST" {
				t.Errorf("the sandbox saw %+v", got)
			}
			if got.Header.Get("X-Forwarded-For") != "1.2.3.4" {
				t.Errorf("X-Forwarded-For became %q", got.Header.Get("X-Forwarded-For"))
			}
			for _, name := range []string{"X-Hop", "X-Api-Key", "X-Access-Token", "E2b-Traffic-Access-Token"} {
				if got.Header.Get(name) != "" {
					t.Errorf("%s reached the sandbox", name)
				}
			}
		})
	}
}

func TestKeepsTheApplicationsOwnHeaders(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", 8080, echo, nil)
	r := f.request("GET", "iabc", "8080", "/")
	r.Header.Set("X-Api-Key", "sk-application")
	r.Header.Set("Authorization", "Bearer application")
	r.Header.Set("X-Access-Token", "application")
	_, body, _ := do(t, r)
	var got echoed
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("X-Api-Key") != "sk-application" || got.Header.Get("Authorization") != "Bearer application" ||
		got.Header.Get("X-Access-Token") != "application" {
		t.Errorf("the sandbox saw %v", got.Header)
	}
}

func TestRefusals(t *testing.T) {
	f := newFixture(t, "")
	dialPauses = []time.Duration{time.Millisecond}
	f.sandbox("iabc", EnvdPort, echo, nil)
	f.sandbox("iopen", EnvdPort, echo, func(r *claim.Route) { r.AccessToken = "" })
	f.sandbox("ipriv", 8080, echo, func(r *claim.Route) { r.PrivateTraffic, r.TrafficToken = true, "traffic" })

	const missing = `{"sandboxId":"ipriv","message":"Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing","code":403}`
	const invalid = `{"sandboxId":"ipriv","message":"Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid","code":403}`
	const envd = "49983"
	for _, tc := range []struct {
		name, id, port, path string
		header               [2]string
		status               int
		body                 string
	}{
		{name: "unknown sandbox", id: "inone", port: "80", path: "/", status: 502, body: `{"sandboxId":"inone","message":"The sandbox was not found","code":502}`},
		{name: "closed port", id: "iabc", port: "81", path: "/", status: 502, body: `{"sandboxId":"iabc","message":"The sandbox is running but port is not open","port":81,"code":502}`},
		{name: "internal path", id: "iabc", port: envd, path: "/init", status: 404, body: `{"message":"This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL","path":"/init","code":404}`},
		{name: "bad id", id: "A", port: envd, path: "/", status: 400, body: `{"message":"Invalid sandbox ID","code":400}`},
		{name: "no traffic token", id: "ipriv", port: "8080", path: "/", status: 403, body: missing},
		{name: "wrong traffic token", id: "ipriv", port: "8080", path: "/", header: [2]string{"E2b-Traffic-Access-Token", "no"}, status: 403, body: invalid},
		{name: "foreign key on private port", id: "ipriv", port: "8080", path: "/", header: [2]string{"X-Api-Key", foreignKey}, status: 403, body: missing},
		{name: "traffic token", id: "ipriv", port: "8080", path: "/", header: [2]string{"E2b-Traffic-Access-Token", "traffic"}, status: 200},
		{name: "key instead of traffic token", id: "ipriv", port: "8080", path: "/", header: [2]string{"X-Api-Key", ownerKey}, status: 200},
		{name: "envd with token", id: "iabc", port: envd, path: "/files", header: [2]string{"X-Access-Token", "any"}, status: 200},
		{name: "envd with key", id: "iabc", port: envd, path: "/files", header: [2]string{"Authorization", "Bearer " + ownerKey}, status: 200},
		{name: "envd health", id: "iopen", port: envd, path: "/health", status: 200},
		{name: "open envd without key", id: "iopen", port: envd, path: "/files", status: 401, body: `{"sandboxId":"iopen","message":"The sandbox has no access token of its own: send the API key of its owner in X-API-KEY","code":401}`},
		{name: "open envd with a made-up token", id: "iopen", port: envd, path: "/files", header: [2]string{"X-Access-Token", "any"}, status: 401, body: `{"sandboxId":"iopen","message":"The sandbox has no access token of its own: send the API key of its owner in X-API-KEY","code":401}`},
		{name: "open envd with foreign key", id: "iopen", port: envd, path: "/files", header: [2]string{"X-Api-Key", foreignKey}, status: 401, body: `{"sandboxId":"iopen","message":"The sandbox has no access token of its own: send the API key of its owner in X-API-KEY","code":401}`},
		{name: "open envd with key", id: "iopen", port: envd, path: "/files", header: [2]string{"Agentbox-Api-Key", ownerKey}, status: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := f.request("GET", tc.id, tc.port, tc.path)
			if tc.header[0] != "" {
				r.Header.Set(tc.header[0], tc.header[1])
			}
			status, body, header := do(t, r)
			if status != tc.status || (tc.body != "" && string(body) != tc.body) {
				t.Errorf("got %d %s; want %d %s", status, body, tc.status, tc.body)
			}
			if tc.body != "" && header.Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("Content-Type %q", header.Get("Content-Type"))
			}
		})
	}
}

// A script in a page must be able to read that its sandbox is gone: without CORS it sees a broken network.
func TestScriptsReadRefusals(t *testing.T) {
	f := newFixture(t, "")
	dialPauses = []time.Duration{time.Millisecond}
	f.sandbox("iabc", EnvdPort, echo, nil)
	for _, port := range []string{"49983", "8080", "x"} {
		for _, id := range []string{"inone", "iabc"} {
			if id == "iabc" && port == "49983" {
				continue // envd answers there
			}
			r := f.request("GET", id, port, "/health")
			r.Header.Set("Origin", "https://page.test")
			if status, body, header := do(t, r); status < 400 || header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%s %s: %d %s %v", id, port, status, body, header)
			}
			r.Method = "OPTIONS"
			r.Header.Set("Access-Control-Request-Method", "GET")
			r.Header.Set("Access-Control-Request-Headers", "x-access-token")
			status, _, header := do(t, r)
			if status != 204 || header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(header.Get("Access-Control-Allow-Headers"), "*") {
				t.Errorf("preflight %s %s: %d %v", id, port, status, header)
			}
		}
	}

	// The preflight of a request that addresses by headers does not have them yet.
	r := httptest.NewRequest("OPTIONS", "/files", nil)
	r.Header.Set("Origin", "https://page.test")
	r.Header.Set("Access-Control-Request-Method", "GET")
	if f.gateway.Match(r) {
		t.Error("any preflight is taken for the gateway's")
	}
	r.Header.Set("Access-Control-Request-Headers", "e2b-sandbox-id,e2b-sandbox-port,x-access-token")
	w := httptest.NewRecorder()
	f.gateway.ServeHTTP(w, r)
	if !f.gateway.Match(r) || w.Code != 204 || w.Header().Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("preflight of a request with headers: %d %v", w.Code, w.Header())
	}
}

func TestOwnerKeyBecomesTheAccessToken(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", EnvdPort, echo, nil)
	r := f.request("GET", "iabc", "49983", "/files")
	r.Header.Set("X-Api-Key", ownerKey)
	_, body, _ := do(t, r)
	var got echoed
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("X-Access-Token") != "envd-token" || got.Header.Get("X-Api-Key") != "" {
		t.Errorf("envd saw %v", got.Header)
	}
}

func TestBrowserSeesAPage(t *testing.T) {
	f := newFixture(t, "")
	for _, tc := range []struct {
		name   string
		header http.Header
		html   bool
	}{
		{"navigation", http.Header{"User-Agent": {"Mozilla/5.0"}, "Accept": {"text/html"}, "Sec-Fetch-Mode": {"navigate"}}, true},
		{"script", http.Header{"User-Agent": {"Mozilla/5.0"}, "Sec-Fetch-Mode": {"cors"}}, false},
		{"wants JSON", http.Header{"User-Agent": {"Mozilla/5.0"}, "Accept": {"application/json"}}, false},
		{"program", http.Header{"User-Agent": {"node"}}, false},
	} {
		r := f.request("GET", "inone", "80", "/")
		for name, values := range tc.header {
			r.Header[name] = values
		}
		status, _, header := do(t, r)
		if html := strings.HasPrefix(header.Get("Content-Type"), "text/html"); html != tc.html || status != 502 {
			t.Errorf("%s: %d %s", tc.name, status, header.Get("Content-Type"))
		}
	}
}

// TestStreamsBothWays needs each part to arrive before the next is sent, on one HTTP/1.1 request.
func TestStreamsBothWays(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintf(w, "got %s\n", lines.Text())
			_ = http.NewResponseController(w).Flush()
		}
	}), nil)
	read, write := io.Pipe()
	r := f.request("POST", "iabc", "8080", "/")
	r.Body = read
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answers := bufio.NewScanner(response.Body)
	for i := range 3 {
		fmt.Fprintf(write, "%d\n", i)
		if !answers.Scan() || answers.Text() != fmt.Sprintf("got %d", i) {
			t.Fatalf("answer %d: %q, %v", i, answers.Text(), answers.Err())
		}
	}
	_ = write.Close()
	if answers.Scan() {
		t.Errorf("unexpected %q", answers.Text())
	}
}

// TestRefusedIsNoActivity: whoever has no right to a sandbox cannot keep it, whether the gateway refuses or envd does.
func TestRefusedIsNoActivity(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", EnvdPort, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions && r.Header.Get("X-Access-Token") != "envd-token" && r.URL.Query().Get("signature") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}), nil)
	for _, c := range []struct {
		method, path, token string
		counts              bool
	}{
		{"GET", "/files", "", false},
		{"GET", "/files", "wrong", false},
		{"GET", "/files?signature=wrong", "", false},
		{"OPTIONS", "/files", "", false},
		{"GET", "/files?signature=right", "", true},
		{"GET", "/files", "envd-token", true},
	} {
		before := f.claims.touches.Load()
		r := f.request(c.method, "iabc", "49983", c.path)
		if c.token != "" {
			r.Header.Set("X-Access-Token", c.token)
		}
		status, _, _ := do(t, r)
		if counts := f.claims.touches.Load() > before; counts != c.counts {
			t.Errorf("%s %s with token %q: %d, activity %v", c.method, c.path, c.token, status, counts)
		}
	}
}

func TestHealthIsNoActivity(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", EnvdPort, echo, nil)
	for range 3 {
		if status, _, _ := do(t, f.request("GET", "iabc", "49983", "/health")); status != 200 {
			t.Fatal(status)
		}
	}
	if n := f.claims.touches.Load(); n != 0 {
		t.Errorf("health probes were recorded as activity %d times", n)
	}
}

// activity waits until more of it is recorded, for something that is open and moves no byte.
func (f *fixture) activity(of string) {
	f.t.Helper()
	before := f.claims.touches.Load()
	for deadline := time.Now().Add(30 * time.Second); f.claims.touches.Load() < before+2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("%s does not count as activity", of)
		}
	}
}

func TestOpenRequestIsActivity(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", EnvdPort, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // silent from now on
	}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	response, err := http.DefaultClient.Do(f.request("POST", "iabc", "49983", "/process.Process/Start").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	f.activity("a silent stream")
	cancel()
	for quiet := 0; quiet < 2; { // once it is closed, no more is recorded
		before := f.claims.touches.Load()
		time.Sleep(time.Second)
		if quiet++; f.claims.touches.Load() != before {
			quiet = 0
		}
	}
}

func TestKillResetsStreams(t *testing.T) {
	f := newFixture(t, "")
	kill := f.sandbox("iabc", 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), nil)

	t.Run("HTTP/1.1", func(t *testing.T) {
		first, rest := openStream(t, f, http.DefaultTransport)
		if first != "first" {
			t.Fatal(first)
		}
		second, restOther := openStream(t, f, h2cTransport(t))
		if second != "first" {
			t.Fatal(second)
		}
		kill()
		if _, err := rest(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("HTTP/1.1 stream ended with %v; want a connection reset", err)
		}
		if _, err := restOther(); err == nil || !strings.Contains(err.Error(), "INTERNAL_ERROR") {
			t.Errorf("HTTP/2 stream ended with %v; want a stream reset", err)
		}
	})
	status, body, _ := do(t, f.request("GET", "iabc", "8080", "/"))
	if status != 502 || !bytes.Contains(body, []byte("The sandbox was not found")) {
		t.Errorf("after the kill: %d %s", status, body)
	}
}

// TestCloseEndsStreams shows that a gateway that closes ends streams at once, and lets other answers come to their end.
func TestCloseEndsStreams(t *testing.T) {
	f := newFixture(t, "")
	goOn := make(chan struct{})
	f.sandbox("iabc", 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
			fmt.Fprintln(w, "last")
		case <-r.Context().Done():
		}
	}), nil)
	open := func(kind string) *http.Response {
		resp, err := http.DefaultClient.Do(f.request("GET", "iabc", "8080", "/?type="+url.QueryEscape(kind)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	download := open("text/plain")
	streams := []*http.Response{open("text/event-stream"), open("application/connect+json"), open("application/grpc")}
	f.gateway.Close()
	// One that had not begun may be cut before its header arrives.
	late, err := http.DefaultClient.Do(f.request("GET", "iabc", "8080", "/?type=text/event-stream"))
	switch {
	case err == nil:
		defer late.Body.Close()
		streams = append(streams, late)
	case !errors.Is(err, syscall.ECONNRESET):
		t.Errorf("the late stream ended with %v; want a connection reset", err)
	}
	for _, s := range streams {
		if body, err := io.ReadAll(s.Body); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the stream of %s ended with %q, %v; want a connection reset", s.Header.Get("Content-Type"), body, err)
		}
	}
	close(goOn)
	if body, err := io.ReadAll(download.Body); err != nil || string(body) != "first\nlast\n" {
		t.Errorf("the download ended with %q, %v", body, err)
	}
}

// TestKillAnswersWhoWaits ends a sandbox while a request waits for its answer: the client learns what the next request
// would learn, and not that a connection broke.
func TestKillAnswersWhoWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		via  func(*testing.T) http.RoundTripper
		port int
	}{
		{"HTTP/1.1", func(*testing.T) http.RoundTripper { return http.DefaultTransport }, 8080},
		{"HTTP/2", func(t *testing.T) http.RoundTripper { return h2cTransport(t) }, 8080},
		{"health", func(*testing.T) http.RoundTripper { return http.DefaultTransport }, EnvdPort},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, "")
			asked := make(chan struct{})
			kill := f.sandbox("iabc", c.port, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				close(asked)
				<-r.Context().Done()
			}), nil)
			go func() {
				<-asked
				kill()
			}()
			response, err := c.via(t).RoundTrip(f.request("GET", "iabc", fmt.Sprint(c.port), "/health"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			if response.StatusCode != 502 || err != nil || !bytes.Contains(body, []byte("The sandbox was not found")) {
				t.Errorf("%s %v: %s", response.Status, err, body)
			}
		})
	}
}

// TestKillNeverBreaksAnAnswerWithoutBody races the end of a sandbox with answers that are nothing but a header.
func TestKillNeverBreaksAnAnswerWithoutBody(t *testing.T) {
	f := newFixture(t, "")
	for range 200 {
		kill := f.sandbox("iabc", EnvdPort, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}), nil)
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			kill()
		}()
		for range 3 {
			if status, body, _ := do(t, f.request("GET", "iabc", "49983", "/health")); status != 204 && status != 502 {
				t.Fatalf("%d %s", status, body)
			}
		}
		<-killed
	}
}

func openStream(t *testing.T, f *fixture, via http.RoundTripper) (first string, rest func() ([]byte, error)) {
	t.Helper()
	response, err := via.RoundTrip(f.request("GET", "iabc", "8080", "/"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	in := bufio.NewReader(response.Body)
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), func() ([]byte, error) { return io.ReadAll(in) }
}

func h2cTransport(t *testing.T) *http.Transport {
	tr := &http.Transport{Protocols: &http.Protocols{}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// TestKillFreesABlockedWriter ends a sandbox while its answer waits for a client that does not read.
func TestKillFreesABlockedWriter(t *testing.T) {
	f := newFixture(t, "")
	wrote := make(chan int64, 1)
	kill := f.sandbox("iabc", 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(w, endless{})
		wrote <- n
	}), nil)
	response, err := http.DefaultClient.Do(f.request("GET", "iabc", "8080", "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	kill()
	// Back-pressure: what the sandbox could write is bounded by the buffers between it and a client that reads nothing.
	if n := <-wrote; n > 64<<20 {
		t.Errorf("the sandbox wrote %d bytes that nobody read", n)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestWebSocketStyleUpgrade(t *testing.T) {
	f := newFixture(t, "")
	kill := f.sandbox("iabc", 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			w.WriteHeader(400)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	}), nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: 8080-iabc.box.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil || response.StatusCode != 101 {
		t.Fatalf("%v %v", response, err)
	}
	for _, text := range []string{"one\n", "two\n"} {
		fmt.Fprint(conn, text)
		line, err := in.ReadString('\n')
		if err != nil || line != text {
			t.Fatalf("%q %v", line, err)
		}
	}
	f.activity("a silent upgraded connection")
	kill()
	if _, err := in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the kill: %v; want a connection reset", err)
	}
}

// TestGRPC carries HTTP/2 with trailers to a port that speaks HTTP/2 without TLS.
func TestGRPC(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("X-Te", r.Header.Get("Te"))
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("Grpc-Status", "0")
	}), nil)
	r := f.request("POST", "iabc", "8080", "/pkg.Service/Method")
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	r.Body = io.NopCloser(strings.NewReader("message"))
	response, err := h2cTransport(t).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "message" || response.Header.Get("X-Proto") != "HTTP/2.0" || response.Header.Get("X-Te") != "trailers" {
		t.Errorf("%q %v %v", body, response.Header, err)
	}
	if response.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("trailers %v", response.Trailer)
	}
}

// TestWaitsForAPortToOpen opens the port when the gateway has been refused once.
func TestWaitsForAPortToOpen(t *testing.T) {
	f := newFixture(t, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inner := NewServer(echo, nil)
	go func() { _ = inner.Serve(l) }()
	t.Cleanup(func() { _ = inner.Close() })
	attempts := 0
	f.route("iabc", nil, func(r *claim.Route) {
		r.Dial = func(ctx context.Context, port int) (net.Conn, error) {
			if attempts++; attempts == 1 {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		}
	})
	if status, body, _ := do(t, f.request("GET", "iabc", "8080", "/")); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

func TestBrokenAnswer(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", 8080, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), nil)
	r := f.request("POST", "iabc", "8080", "/")
	status, body, _ := do(t, r)
	if status != 502 || !bytes.Contains(body, []byte("broke before it answered")) {
		t.Errorf("%d %s", status, body)
	}
}

// TestRedirectsAreTheClients follows none: where a sandbox points is no business of the gateway.
func TestRedirectsAreTheClients(t *testing.T) {
	f := newFixture(t, "")
	f.sandbox("iabc", 8080, http.RedirectHandler("http://169.254.169.254/", http.StatusFound), nil)
	response, err := http.DefaultTransport.RoundTrip(f.request("GET", "iabc", "8080", "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != 302 || response.Header.Get("Location") != "http://169.254.169.254/" {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
}

// TestSuccessorOfAnID routes a reused id to its new claim and never over connections of the old one.
func TestSuccessorOfAnID(t *testing.T) {
	f := newFixture(t, "")
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	kill := f.sandbox("iabc", 8080, answer("old"), nil)
	if _, body, _ := do(t, f.request("GET", "iabc", "8080", "/")); string(body) != "old" {
		t.Fatal(string(body))
	}
	kill()
	f.sandbox("iabc", 8080, answer("new"), nil)
	if _, body, _ := do(t, f.request("GET", "iabc", "8080", "/")); string(body) != "new" {
		t.Errorf("%s", body)
	}
}
