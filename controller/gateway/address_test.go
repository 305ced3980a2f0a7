package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestResolve(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	both := header("E2b-Sandbox-Id", "iabc", "E2b-Sandbox-Port", "8080")
	for _, tc := range []struct {
		name, domain, host, target string
		header                     http.Header
		want                       Target
		err                        string
	}{
		{name: "host", host: "8080-iabc.box.test", target: "/a?b", want: Target{ID: "iabc", Port: 8080, RawPath: "/a", RawQuery: "b"}},
		{name: "host with port", domain: "box.test", host: "8080-iabc.box.test:8443", target: "/", want: Target{ID: "iabc", Port: 8080, RawPath: "/"}},
		{name: "host with client id", host: "8080-iabc-6532622b.box.test", target: "/", want: Target{ID: "iabc", Port: 8080, RawPath: "/"}},
		{name: "host in capitals", domain: "Box.Test", host: "8080-IABC.BOX.TEST.", target: "/", want: Target{ID: "iabc", Port: 8080, RawPath: "/"}},
		{name: "host of another domain", domain: "box.test", host: "8080-iabc.other.test", target: "/", err: "none"},
		{name: "host that is no sandbox", host: "my-console.box.test", target: "/", err: "none"},
		{name: "host below the domain that is no sandbox", domain: "box.test", host: "my-console.box.test", target: "/", err: "Invalid sandbox port"},
		{name: "host with a word for a port", domain: "box.test", host: "abc-iabc.box.test:8443", target: "/", err: "Invalid sandbox port"},
		{name: "host with a port of six digits", domain: "box.test", host: "999999-iabc.box.test", target: "/", err: "Invalid sandbox port"},
		{name: "host without a port", domain: "box.test", host: "foo.box.test", target: "/v1/envs", err: "Invalid host"},
		{name: "host two labels below the domain", domain: "box.test", host: "80-iabc.x.box.test", target: "/", err: "Invalid host"},
		{name: "host of the E2B API", domain: "box.test", host: "api.box.test", target: "/sandboxes", err: "none"},
		{name: "the domain itself", domain: "box.test", host: "box.test:8443", target: "/v1/envs", err: "none"},
		{name: "the platform's own host", domain: "box.test", host: "my-platform.box.test", target: "/v1/envs", err: "none"},
		{name: "headers at a host below the domain", domain: "box.test", host: "foo.box.test", target: "/", header: both, want: Target{ID: "iabc", Port: 8080, RawPath: "/"}},
		{name: "host without dot", host: "8080-iabc", target: "/", err: "none"},
		{name: "host with port zero", host: "0-iabc.box.test", target: "/", err: "Invalid sandbox port"},
		{name: "host with a large port", host: "65536-iabc.box.test", target: "/", err: "Invalid sandbox port"},
		{name: "host with a bad id", host: "80-i_c.box.test", target: "/", err: "Invalid sandbox ID"},
		{name: "host before headers", host: "80-ihost.box.test", target: "/", header: both, want: Target{ID: "ihost", Port: 80, RawPath: "/"}},
		{name: "headers", host: "127.0.0.1:80", target: "/x%2Fy?", header: both, want: Target{ID: "iabc", Port: 8080, RawPath: "/x%2Fy", ForceQuery: true}},
		{name: "other headers", host: "localhost", target: "/", header: header("X-Sandbox-Id", "iabc", "X-Sandbox-Port", "1"), want: Target{ID: "iabc", Port: 1, RawPath: "/"}},
		{name: "headers below the data prefix", host: "localhost", target: "/agent-sandbox/api/data/health", header: both, want: Target{ID: "iabc", Port: 8080, RawPath: "/health"}},
		{name: "id without port", host: "localhost", target: "/", header: header("E2b-Sandbox-Id", "iabc"), err: "missing header E2b-Sandbox-Port"},
		{name: "port without id", host: "localhost", target: "/", header: header("E2b-Sandbox-Port", "80"), err: "missing header E2b-Sandbox-Id"},
		{name: "id with a bad port", host: "localhost", target: "/", header: header("X-Sandbox-Id", "iabc", "X-Sandbox-Port", "-1"), err: "Invalid sandbox port"},
		{name: "stable host without headers", domain: "box.test", host: "sandbox.box.test", target: "/", err: "missing header E2b-Sandbox-Id"},
		{name: "stable host", domain: "box.test", host: "sandbox.box.test", target: "/p", header: both, want: Target{ID: "iabc", Port: 8080, RawPath: "/p"}},
		{name: "path", host: "localhost", target: "/agent-sandbox/api/data/sandboxes/iabc/8080/a/../b?c=d", want: Target{ID: "iabc", Port: 8080, RawPath: "/a/../b", RawQuery: "c=d"}},
		{name: "path to the root", host: "localhost", target: "/agent-sandbox/api/data/sandboxes/iabc/8080", want: Target{ID: "iabc", Port: 8080, RawPath: "/"}},
		{name: "path before headers", host: "localhost", target: "/agent-sandbox/api/data/sandboxes/ipath/1/x", header: both, want: Target{ID: "ipath", Port: 1, RawPath: "/x"}},
		{name: "path without port", host: "localhost", target: "/agent-sandbox/api/data/sandboxes/iabc", err: "Invalid sandbox port"},
		{name: "path without id", host: "localhost", target: "/agent-sandbox/api/data/sandboxes//80/", err: "Invalid sandbox ID"},
		{name: "double slash", host: "localhost", target: "//evil.test/x", header: both, want: Target{ID: "iabc", Port: 8080, RawPath: "//evil.test/x"}},
		{name: "control plane", host: "localhost", target: "/e2b/sandboxes", err: "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := New(Options{Domain: tc.domain, Host: "my-platform.box.test"})
			r := httptest.NewRequest("GET", "/", nil)
			r.RequestURI, r.Host = tc.target, tc.host
			if tc.header != nil {
				r.Header = tc.header
			}
			got, err := g.resolve(r)
			switch {
			case tc.err == "none":
				if !errors.Is(err, errNotAddressed) || g.Match(r) {
					t.Fatalf("resolve = %+v, %v; want no address", got, err)
				}
			case tc.err != "":
				if err == nil || !g.Match(r) || len(err.Error()) < len(tc.err) || err.Error()[:len(tc.err)] != tc.err {
					t.Fatalf("resolve = %+v, %v; want error %q", got, err, tc.err)
				}
			case err != nil || got != tc.want:
				t.Fatalf("resolve = %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestInternalPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/init": true, "//init": true, "/./init": true, "/a/../init": true, "/%69nit": true, "/init/": true, "/state": true,
		"/x/init": false, "/initial": false, "/health": false, "/process.Process/Start": false,
	} {
		if got := internalPath(Target{Port: EnvdPort, RawPath: path}); got != want {
			t.Errorf("internalPath(%q) = %v", path, got)
		}
		if internalPath(Target{Port: 80, RawPath: path}) {
			t.Errorf("internalPath(%q) on another port", path)
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("8080-iabc.box.test", "/a?b", "", "")
	f.Add("localhost", "/agent-sandbox/api/data/sandboxes/i/1/..%2f", "", "")
	f.Add("[::1]:80", "//x", "iabc", "80")
	f.Add("a.b", "", "i-", "99999999999999999999")
	f.Fuzz(func(t *testing.T, host, target, id, port string) {
		g := New(Options{})
		r := httptest.NewRequest("GET", "/", nil)
		r.Host, r.RequestURI = host, target
		r.Header = http.Header{"E2b-Sandbox-Id": {id}, "E2b-Sandbox-Port": {port}}
		got, err := g.resolve(r)
		if err != nil {
			return
		}
		if !isID(got.ID) || got.Port < 1 || got.Port > 65535 || got.RawPath == "" || got.RawPath[0] != '/' {
			t.Fatalf("host %q, target %q, id %q, port %q resolve to %+v", host, target, id, port, got)
		}
	})
}
