package e2b

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/controller/claim"
)

func TestCreate(t *testing.T) {
	alice := claim.Owner{Namespace: "t-red-alice", Team: "red", User: "alice"}
	for _, tc := range []struct {
		name, path, body string
		want             claim.Request
	}{
		{"SDK 2.51", "/v2/sandboxes", `{"templateID":"base"}`,
			claim.Request{Env: "default", Timeout: 300 * time.Second}},
		{"SDK 2.50", "/sandboxes", `{"templateID":"default","timeout":91,"secure":true,"allow_internet_access":true,"autoPause":false}`,
			claim.Request{Env: "default", Timeout: 91 * time.Second}},
		{"SDK 1.x", "/sandboxes", `{"autoPause":false,"templateID":"default","metadata":{"a":"b"},"envVars":{"E":"1"},"timeout":300,"allow_internet_access":true}`,
			claim.Request{Env: "default", Timeout: 300 * time.Second, Metadata: map[string]string{"a": "b"}, EnvVars: map[string]string{"E": "1"}}},
		{"v1 without timeout", "/sandboxes", `{"templateID":"default"}`,
			claim.Request{Env: "default", Timeout: 15 * time.Second}},
		{"timeout of the environment", "/v2/sandboxes", `{"templateID":"patient"}`,
			claim.Request{Env: "patient"}},
		{"harmless values", "/v2/sandboxes", `{"templateID":"default","timeout":1,"autoPauseMemory":true,"autoResume":{"enabled":false},"iam":{},"mcp":null,"volumeMounts":[],"network":{"allowOut":[],"egressProxy":null,"allowPublicTraffic":true}}`,
			claim.Request{Env: "default", Timeout: time.Second}},
		{"private traffic", "/v2/sandboxes", `{"templateID":"default","timeout":1,"network":{"allowPublicTraffic":false}}`,
			claim.Request{Env: "default", Timeout: time.Second, PrivateTraffic: true}},
		{"image", "/v2/sandboxes", `{"templateID":" local :: default // ubuntu:24.04 ","timeout":1}`,
			claim.Request{Env: "default", Image: "ubuntu:24.04", Timeout: time.Second}},
		{"pool of this cluster", "/v2/sandboxes", `{"templateID":"local::default-2c4gi","timeout":1}`,
			claim.Request{Pool: "default-2c4gi", Timeout: time.Second}},
		{"reserved metadata", "/v2/sandboxes", `{"templateID":"default//a","timeout":1,"metadata":{"agentbox.scitix.ai/image":"b","agentbox.scitix.ai/startup-timeout":"900","agentbox.scitix.ai/scaling-group":"1c2gi","agentbox.scitix.ai/timeout-mode":"absolute","run":"7"}}`,
			claim.Request{Env: "default", Image: "b", Timeout: time.Second, StartupTimeout: 900 * time.Second, ScalingGroup: "1c2gi",
				TimeoutMode: claim.TimeoutAbsolute, Metadata: map[string]string{"run": "7"}}},
		{"idle timeout in metadata", "/v2/sandboxes", `{"templateID":"default","timeout":-1,"metadata":{"idleTimeout":"600"}}`,
			claim.Request{Env: "default", Timeout: 600 * time.Second, TimeoutMode: claim.TimeoutIdle, Metadata: map[string]string{"idleTimeout": "600"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, nil)
			a := f.call(aliceKey, "POST", tc.path, tc.body)
			if a.Status != http.StatusCreated {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			tc.want.Owner, tc.want.Secure = alice, true
			tc.want.DefaultStartupTimeout = 55 * time.Second // the SDKs wait for 60 s
			if tc.want.Metadata == nil {
				tc.want.Metadata = map[string]string{}
			}
			if got := f.claims.requests[0]; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("claimed %+v\nwant    %+v", got, tc.want)
			}
			var sb sandboxBody
			a.decode(t, &sb)
			if sb.EnvdAccessToken == "" || sb.EnvdVersion != EnvdVersion || sb.ClientID == "" || sb.Domain != nil {
				t.Errorf("answered %+v", sb)
			}
			if (sb.TrafficAccessToken != nil) != tc.want.PrivateTraffic {
				t.Errorf("traffic token %v", sb.TrafficAccessToken)
			}
		})
	}
}

func TestCreateRefusals(t *testing.T) {
	for _, tc := range []struct{ name, body, want string }{
		{"empty", "", "the body is empty"},
		{"no object", `[]`, "want an object"},
		{"no JSON", `{"templateID":`, "unexpected EOF"},
		{"two values", `{"templateID":"default"}{}`, "more than one JSON value"},
		{"unknown field", `{"templateID":"default","autopawse":true}`, `unknown field "autopawse"`},
		{"field in capitals", `{"templateID":"default","TIMEOUT":1}`, `unknown field "TIMEOUT"`},
		{"nested field in capitals", `{"templateID":"default","network":{"AllowOut":[]}}`, `unknown field "network.AllowOut"`},
		{"field twice", `{"templateID":"default","timeout":1,"timeout":2}`, `duplicate field "timeout"`},
		{"metadata twice", `{"templateID":"default","metadata":{"a":"1","a":"2"}}`, `duplicate field "metadata.a"`},
		{"wrong type", `{"templateID":"default","timeout":"1"}`, `field "timeout" cannot be a string`},
		{"fraction", `{"templateID":"default","timeout":1.5}`, `field "timeout" cannot be a number 1.5`},
		{"no template", `{}`, "templateID is required"},
		{"blank template", `{"templateID":"  "}`, "templateID is required"},
		{"bad template", `{"templateID":"team/x"}`, "[cluster::]name[//image]"},
		{"unknown template", `{"templateID":"nope"}`, `sandbox env or pool "nope" not found; there is default, patient`},
		{"foreign template", `{"templateID":"blue"}`, `sandbox env or pool "blue" not found; there is default, patient`},
		{"another user's template", `{"templateID":"colleagues"}`, "not found"},
		{"pool without cluster", `{"templateID":"default-2c4gi"}`, "not found"},
		{"unknown cluster", `{"templateID":"mars::default//img"}`, `this is cluster "local"; write "default//img"`},
		{"timeout zero", `{"templateID":"default","timeout":0}`, "greater than 0"},
		{"timeout -2", `{"templateID":"default","timeout":-2}`, "greater than 0"},
		{"timeout too large", `{"templateID":"default","timeout":2147483648}`, "2147483647"},
		{"-1 alone", `{"templateID":"default","timeout":-1}`, "idleTimeout"},
		{"-1 with nonsense", `{"templateID":"default","timeout":-1,"metadata":{"idleTimeout":"soon"}}`, "whole number of seconds"},
		{"-1 absolute", `{"templateID":"default","timeout":-1,"metadata":{"idleTimeout":"9","agentbox.scitix.ai/timeout-mode":"absolute"}}`, "drop one"},
		{"startup timeout", `{"templateID":"default","metadata":{"agentbox.scitix.ai/startup-timeout":"x"}}`, "whole number of seconds"},
		{"timeout mode", `{"templateID":"default","metadata":{"agentbox.scitix.ai/timeout-mode":"x"}}`, `"absolute"`},
		{"refused reserved key", `{"templateID":"default","metadata":{"agentbox.scitix.ai/no-wait":"true"}}`, "no-wait is not supported"},
		{"unknown reserved key", `{"templateID":"default","metadata":{"agentbox.scitix.ai/imagee":"x"}}`, "it knows image, scaling-group, startup-timeout, timeout-mode"},
		{"large body", fmt.Sprintf(`{"templateID":%q}`, strings.Repeat("x", 1<<20)), "larger than"},
		{"environment", `{"templateID":"default","envVars":{"A=B":"c"}}`, "envVars"},
		{"auto pause", `{"templateID":"default","autoPause":true}`, "autoPause is not supported"},
		{"auto pause memory", `{"templateID":"default","autoPauseMemory":false}`, "autoPauseMemory"},
		{"auto resume", `{"templateID":"default","autoResume":{"enabled":true}}`, "autoResume is not supported"},
		{"no internet", `{"templateID":"default","allow_internet_access":false}`, "egress control"},
		{"deny out", `{"templateID":"default","network":{"denyOut":["0.0.0.0/0"]}}`, "egress control"},
		{"rules", `{"templateID":"default","network":{"rules":{"a.b":[{}]}}}`, "network.rules"},
		{"egress proxy", `{"templateID":"default","network":{"egressProxy":{"address":"a:1"}}}`, "network.egressProxy"},
		{"mask host", `{"templateID":"default","network":{"maskRequestHost":"h"}}`, "network.maskRequestHost"},
		{"https ports", `{"templateID":"default","network":{"httpsPorts":[3000]}}`, "network.httpsPorts"},
		{"unknown network field", `{"templateID":"default","network":{"x":1}}`, "unknown field"},
		{"mcp", `{"templateID":"default","mcp":{}}`, "mcp is not supported"},
		{"iam", `{"templateID":"default","iam":{"tokens":{"a":{}}}}`, "iam.tokens"},
		{"volumes", `{"templateID":"default","volumeMounts":[{"name":"v","path":"/v"}]}`, "volumeMounts"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, nil)
			a := f.call(aliceKey, "POST", "/sandboxes", tc.body)
			if (a.Status != 400 && a.Status != 413) || !strings.Contains(string(a.Body), escaped(tc.want)) {
				t.Errorf("%d %s; want 400 with %q", a.Status, a.Body, tc.want)
			}
			if len(f.claims.requests) > 0 {
				t.Error("a refused create reached the claims")
			}
		})
	}
}

// escaped is text as it stands inside a JSON string.
func escaped(s string) string { return strings.ReplaceAll(s, `"`, `\"`) }

func TestClaimFailures(t *testing.T) {
	codes := []claim.Code{claim.CodeInvalid, claim.CodeNotFound, claim.CodeNoCapacity, claim.CodeQueueFull, claim.CodeQuota,
		claim.CodePullFailed, claim.CodePullTimeout, claim.CodeStartTimeout, claim.CodeStartFailed, claim.CodeConflict,
		claim.CodeCanceled, claim.CodeInternal, "SOMETHING_NEW"}
	want := map[claim.Code]struct {
		status int
		code   string
	}{
		claim.CodeInvalid: {400, ""}, claim.CodeNotFound: {400, ""}, claim.CodeNoCapacity: {503, codeCapacity},
		claim.CodeQueueFull: {429, codeCapacity}, claim.CodeQuota: {429, codeCapacity}, claim.CodePullFailed: {500, codeCreateFailed},
		claim.CodePullTimeout: {504, codePlacement}, claim.CodeStartTimeout: {504, codePlacement}, claim.CodeStartFailed: {500, codeCreateFailed},
		claim.CodeConflict: {409, ""}, claim.CodeCanceled: {499, ""}, claim.CodeInternal: {500, codeInternal}, "SOMETHING_NEW": {500, codeInternal},
	}
	var faults bytes.Buffer // what an operator is alarmed by
	f := newFixture(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&faults, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	for _, code := range codes {
		f.claims.fail = fmt.Errorf("wrapped: %w", &claim.Error{Code: code, Message: "what happened", Hint: "do that",
			Err: fmt.Errorf("secret cause")})
		a := f.call(aliceKey, "POST", "/v2/sandboxes", `{"templateID":"default"}`)
		var e errorBody
		a.decode(t, &e)
		if a.Status != want[code].status || e.ErrorCode != want[code].code || !strings.Contains(e.Message, "what happened. do that") {
			t.Errorf("%s: %d %s", code, a.Status, a.Body)
		}
		if strings.Contains(string(a.Body), "secret") {
			t.Errorf("%s: the cause reached the client: %s", code, a.Body)
		}
		fault := a.Status >= 500 && e.ErrorCode != codeCapacity
		if logged := faults.Len() > 0; logged != fault {
			t.Errorf("%s: logged as the platform's fault: %v, want %v: %s", code, logged, fault, &faults)
		}
		faults.Reset()
	}
	f.claims.fail = &claim.Error{Code: claim.CodeQueueFull, Message: "full", RetryAfter: 1500 * time.Millisecond}
	if a := f.call(aliceKey, "POST", "/sandboxes", `{"templateID":"default"}`); a.Header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After %q; want whole seconds, rounded up", a.Header.Get("Retry-After"))
	}
	f.claims.fail = fmt.Errorf("some bug with a secret")
	if a := f.call(aliceKey, "POST", "/sandboxes", `{"templateID":"default"}`); a.Status != 500 || strings.Contains(string(a.Body), "secret") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
