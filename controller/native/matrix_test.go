package native

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

// TestMatrix goes through every operation of the document with every sort of key, in both forms. Alice owns everything
// that the paths name. What must come out follows from the document: its `security`, its path and its x-abx.
func TestMatrix(t *testing.T) {
	p := newPlatform(t)
	p.makeEnv(p.alice, "demo")
	owner := claim.Owner{Namespace: p.aliceNS, Team: fmt.Sprintf("red%d", p.n), User: "alice"}
	p.claims.add(claim.Sandbox{ID: "sb1", Owner: owner, Env: "demo", Pool: "demo-1c2gi", Pod: "p", Status: claim.StatusRunning, ClaimedAt: time.Now(), StartedAt: time.Now()})
	held := p.must(428, request{method: "DELETE", path: "/v1/envs/demo", key: p.aliceAgent})
	approval := held.at("detail.approvalId").(string)
	key, _, err := p.keys.Issue(t.Context(), access.Spec{Role: access.RoleTenant, Team: owner.Team, User: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"{poolName}": "demo-1c2gi", "{groupName}": "1c2gi", "{sandboxId}": "sb1", "{approvalId}": approval,
		"{grantId}": "grn_0000000000000000", "{team}": owner.Team,
	}
	address := func(op *operation) string {
		path := op.path
		for name, v := range values {
			path = strings.ReplaceAll(path, name, v)
		}
		name := "demo"
		switch {
		case strings.Contains(path, "api-keys"):
			name = key.ID
		case strings.Contains(path, "templates"):
			name = p.template
		}
		return strings.ReplaceAll(path, "{name}", name)
	}
	callers := []struct{ name, key string }{
		{"no key", ""}, {"bad key", "agbx_" + strings.Repeat("0", 64)}, {"expired key", p.expired},
		{"other tenant", p.bob}, {"owner", p.alice}, {"agent", p.aliceAgent}, {"admin", p.admin},
	}
	for _, id := range sortedNames(p.h.document.operations) {
		op := p.h.document.operations[id]
		for _, caller := range callers {
			for _, base := range []string{"/v1", "/api/clusters/c-test/v1", "/api/clusters/default/v1"} {
				// Nothing may change on the way: the writes of those who may are dry runs, or have no body to act on.
				r := request{method: op.method, path: base + address(op), key: caller.key}
				may := caller.name == "owner" || caller.name == "admin"
				if isWrite(op.method) && may {
					if op.query["dryRun"] == nil {
						continue
					}
					r.path += "?dryRun=true"
				}
				if caller.name == "other tenant" && len(op.pathParams) == 0 && op.query["dryRun"] != nil {
					r.path += "?dryRun=true" // it is allowed to make things of its own
				}
				if op.body != nil {
					r.body = exampleBody(op, p.template)
				}
				t.Run(fmt.Sprintf("%s/%s%s", id, caller.name, base), func(t *testing.T) {
					checkMatrix(t, op, caller.name, p.do(r))
				})
			}
		}
	}
	if p.get(p.alice, "/v1/envs/demo").status != 200 || p.get(p.alice, "/v1/sandboxes/sb1").at("sandbox.status") != "Running" {
		t.Error("somebody who may not has changed something")
	}
}

// exampleBody is the document's own example of a body, made to fit what the test has.
func exampleBody(op *operation, template string) any {
	media := op.route.Operation.RequestBody.Value.Content.Get("application/json")
	raw, _ := json.Marshal(media.Example)
	text := strings.ReplaceAll(string(raw), `"name":"e2b"`, `"name":"`+template+`"`)
	var body any
	_ = json.Unmarshal([]byte(text), &body)
	return body
}

func checkMatrix(t *testing.T, op *operation, caller string, a answer) {
	t.Helper()
	x, _ := op.route.Operation.Extensions["x-abx"].(map[string]any)
	admin := strings.HasPrefix(op.path, "/admin/")
	foreign := len(op.pathParams) > 0 && !strings.HasPrefix(op.path, "/sandbox-templates")
	want := func(status int, c code) {
		t.Helper()
		if a.status != status || a.code() != string(c) {
			t.Errorf("%d %s, want %d %s", a.status, a.raw, status, c)
		}
	}
	switch caller {
	case "no key", "bad key", "expired key":
		if op.open {
			want(http.StatusOK, "")
			return
		}
		want(http.StatusUnauthorized, codeUnauthenticated)
	case "other tenant":
		switch {
		case op.open:
			want(http.StatusOK, "")
		case admin:
			want(http.StatusForbidden, codeForbidden)
		case foreign:
			want(http.StatusNotFound, codeNotFound)
		case op.id == "CreateSandbox": // the pool in its body is Alice's
			want(http.StatusNotFound, codeNotFound)
		case a.status >= 500:
			t.Errorf("%d %s", a.status, a.raw)
		}
		if strings.Contains(string(a.raw), "t-red") {
			t.Errorf("the answer names another tenant: %s", a.raw)
		}
	case "agent":
		switch {
		case admin:
			want(http.StatusForbidden, codeForbidden)
		case x["agentForbidden"] != nil:
			want(http.StatusForbidden, codeForbiddenAgent)
		case x["approval"] != nil && a.status == http.StatusPreconditionRequired:
			want(http.StatusPreconditionRequired, codeApproval)
			if a.at("detail.operation") != x["approval"] {
				t.Errorf("the approval is for %v, and the document says %v", a.at("detail.operation"), x["approval"])
			}
			if once, _ := x["once"].(bool); a.at("detail.onceOnly") != once {
				t.Errorf("onceOnly is %v, and the document says %v", a.at("detail.onceOnly"), once)
			}
		case x["approval"] != nil && a.status < 300:
			t.Errorf("an agent's write went through: %d %s", a.status, a.raw)
		}
	case "owner":
		if admin {
			want(http.StatusForbidden, codeForbidden)
		} else if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
			t.Errorf("%d %s", a.status, a.raw)
		}
	case "admin":
		if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
}

// TestAgentRules holds the document and the catalogue of gated operations to each other.
func TestAgentRules(t *testing.T) {
	d, err := loadDocument()
	if err != nil {
		t.Fatal(err)
	}
	gated, never := map[string]bool{}, 0
	for _, op := range access.Operations() {
		if op.Never {
			never++
			continue
		}
		gated[op.ID] = op.OnceOnly
	}
	documented := map[string]bool{}
	for id, op := range d.operations {
		x, _ := op.route.Operation.Extensions["x-abx"].(map[string]any)
		name, _ := x["approval"].(string)
		if name == "" {
			continue
		}
		once, _ := x["once"].(bool)
		if catalogue, ok := gated[name]; !ok || catalogue != once {
			t.Errorf("%s: the document says approval %s, once %v; the catalogue says %v, once %v", id, name, once, ok, catalogue)
		}
		documented[name] = true
	}
	for name := range gated {
		if !documented[name] {
			t.Errorf("no operation of the document has the approval %s", name)
		}
	}
	if never == 0 {
		t.Error("nothing is forbidden to agents")
	}
}

func TestForms(t *testing.T) {
	p := newPlatform(t)
	bearer := map[string]string{"Authorization": "Bearer " + strings.Replace(p.alice, "agbx_", "e2b_", 1)}
	for path, status := range map[string]int{
		"/api/clusters":                           200,
		"/api/clusters/c-test/v1/auth/whoami":     200,
		"/api/clusters/default/v1/auth/whoami":    200,
		"/api/clusters/elsewhere/v1/envs":         404,
		"/api/clusters/c-test/v2/envs":            404,
		"/v1/auth/whoami":                         200,
		"/v2/envs":                                404,
		"/api/clusters/c-test/v1/sandboxes/a%2Fb": 404,
	} {
		if a := p.do(request{method: "GET", path: path, header: bearer}); a.status != status {
			t.Errorf("%s: %d %s, want %d", path, a.status, a.raw, status)
		}
	}
	if a := p.do(request{method: "GET", path: "/api/clusters", header: map[string]string{"Authorization": "Bearer nope"}}); a.status != 401 {
		t.Errorf("the cluster list answers a bad key: %d %s", a.status, a.raw)
	}
	if a := p.do(request{method: "GET", path: "/openapi.yaml"}); a.status != 200 || !strings.Contains(string(a.raw), "\nopenapi: 3") {
		t.Errorf("/openapi.yaml: %d", a.status)
	}
	who := p.must(200, request{method: "GET", path: "/v1/auth/whoami", key: p.admin, header: map[string]string{
		"X-Impersonate-Team": fmt.Sprintf("red%d", p.n), "X-Impersonate-User": "alice",
	}})
	if who.at("role") != "tenant" || who.at("namespace") != p.aliceNS {
		t.Errorf("impersonation: %s", who.raw)
	}
	half := p.do(request{method: "GET", path: "/v1/auth/whoami", key: p.admin, header: map[string]string{"X-Impersonate-Team": "red"}})
	if half.status != 403 {
		t.Errorf("half an impersonation: %d %s", half.status, half.raw)
	}
	ignored := p.must(200, request{method: "GET", path: "/v1/auth/whoami", key: p.bob, header: map[string]string{
		"X-Impersonate-Team": fmt.Sprintf("red%d", p.n), "X-Impersonate-User": "alice",
	}})
	if ignored.at("user") != "bob" {
		t.Errorf("a tenant impersonates: %s", ignored.raw)
	}
	if a := p.do(request{method: "GET", path: "/v1/auth/whoami", key: p.alice, header: map[string]string{"X-Request-Id": "mine-1"}}); a.header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("X-Request-Id is %q", a.header.Get("X-Request-Id"))
	}
	if a := p.do(request{method: "GET", path: "/v1/auth/whoami", key: p.alice, header: map[string]string{"X-Request-Id": "a b\x07"}}); a.header.Get("X-Request-Id") == "a b\x07" {
		t.Error("an unfit X-Request-Id is taken over")
	}
}
