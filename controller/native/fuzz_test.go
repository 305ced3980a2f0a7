package native

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzRequest sends anything, as a tenant and as nobody: the answer is never the server's fault, never a panic, and
// every refusal says what was wrong. What it may change is the tenant's own.
func FuzzRequest(f *testing.F) {
	p := newPlatform(f)
	p.makeEnv(p.alice, "demo")
	for _, id := range sortedNames(p.h.document.operations) {
		op := p.h.document.operations[id]
		body := ""
		if op.body != nil {
			raw, _ := json.Marshal(exampleBody(op, p.template))
			body = string(raw)
		}
		f.Add(op.method, "/v1"+strings.NewReplacer("{name}", "demo", "{", "", "}", "").Replace(op.path), "dryRun=true", body, true)
	}
	f.Add("GET", "/v1/envs/%2e%2e", "limit=99999999999999999999", "", true)
	f.Add("GET", "/api/clusters/c-test/v1/sandboxes", "offset=-1&limit=%zz", "", true)
	f.Add("POST", "/v1/envs", "", `{"name":null,"templateRef":[],"overrides":{"volumes":[{"mountPath":1}]}}`, true)
	f.Add("PUT", "/v1/envs/demo/sandboxpools/demo-1c2gi", "", `{"inlineResources":{"requests":{"cpu":"1e309"}},"replicas":1e3}`, true)
	f.Add("POST", "/v1/envs/demo/sandboxpools", "", `{"inlineResources":{"requests":{"cpu":"....","memory":"-0"}},"multiplier":2147483648}`, true)
	f.Add("PUT", "/v1/envs/demo/autoscaling/groups/1c2gi", "", `{"minReplicas":99999999999}`, true)
	f.Add("POST", "/v1/api-keys", "", `{"expiresAt":"0000-00-00T00:00:00Z"}`, true)
	f.Add("GET", "//v1//envs", "", "", false)
	f.Fuzz(func(t *testing.T, method, path, query, body string, known bool) {
		u := &url.URL{Scheme: "http", Host: "example.com", Path: path, RawQuery: query}
		if unescaped, err := url.PathUnescape(path); err == nil {
			u.Path, u.RawPath = unescaped, path
		}
		if strings.Contains(query, "watch") || strings.Contains(query, "follow") {
			return // a stream does not end by itself
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "http://example.com/", strings.NewReader(body))
		if err != nil {
			return
		}
		req.URL = u
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if known {
			req.Header.Set("AGENTBOX-API-KEY", p.alice)
		}
		rec := httptest.NewRecorder()
		p.h.ServeHTTP(rec, req)
		if rec.Code == http.StatusInternalServerError {
			t.Fatalf("%s %q ? %q with %q: %s", method, path, query, body, rec.Body)
		}
		if !known && rec.Code < 400 && !strings.HasSuffix(u.Path, "/version") && u.Path != "/openapi.yaml" {
			t.Fatalf("%s %q answers nobody with %d", method, path, rec.Code)
		}
		if rec.Code >= 400 && method != http.MethodHead {
			var e errorResponse
			if err := json.Unmarshal(rec.Body.Bytes(), &e); err != nil || (e.Error == "" && rec.Code != http.StatusServiceUnavailable) {
				t.Fatalf("%s %q: %d %q", method, path, rec.Code, rec.Body)
			}
		}
	})
}

func FuzzLogLines(f *testing.F) {
	f.Add("2026-03-02T08:00:00.1Z a line\nno time\n\n2026-03-02T08:00:00Z \xff\xfe")
	f.Add("")
	f.Add(strings.Repeat("x", 200_000) + "\n2026-03-02T08:00:00Z after a long one")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		err := eachLine(strings.NewReader(text), func(e logEntry) error {
			n++
			if !utf8.ValidString(e.Log) || strings.ContainsRune(e.Log, '\n') {
				t.Fatalf("%q: the entry %q is no line of text", text, e.Log)
			}
			return nil
		})
		want := strings.Count(text, "\n")
		if text != "" && !strings.HasSuffix(text, "\n") {
			want++
		}
		if err != nil || n != want {
			t.Fatalf("%q: %d lines, want %d: %v", text, n, want, err)
		}
	})
}
