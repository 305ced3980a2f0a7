package native

import (
	"strings"
	"testing"

	"navix.sh/agentbox/controller/access"
)

func (p *testPlatform) decide(key, id, decision, scope string) answer {
	p.t.Helper()
	body := map[string]any{"decision": decision}
	if scope != "" {
		body["scope"] = scope
	}
	return p.do(request{method: "POST", path: "/v1/approvals/" + id + "/decision", key: key, body: body})
}

func TestApprovalOnce(t *testing.T) {
	p := newPlatform(t)
	p.makeEnv(p.alice, "one")
	p.makeEnv(p.alice, "two")
	drop := func(env string) request {
		return request{method: "DELETE", path: "/v1/envs/" + env, key: p.aliceAgent}
	}
	p.must(200, request{method: "DELETE", path: "/v1/envs/one?dryRun=true", key: p.aliceAgent}) // changes nothing, waits for nobody

	held := p.must(428, drop("one"))
	id, _ := held.at("detail.approvalId").(string)
	if held.code() != "APPROVAL_REQUIRED" || held.at("detail.pollUrl") != "/v1/approvals/"+id || held.at("detail.onceOnly") != true {
		t.Errorf("held: %s", held.raw)
	}
	if again := p.must(428, request{method: "DELETE", path: "/api/clusters/default/v1/envs/one", key: p.aliceAgent}); again.at("detail.approvalId") != id {
		t.Errorf("the same call has another request: %s", again.raw)
	}
	if other := p.must(428, drop("two")); other.at("detail.approvalId") == id {
		t.Error("another env has the same request")
	}
	if a := p.get(p.aliceAgent, "/v1/approvals/"+id); a.at("status") != "pending" || a.at("path") != "/envs/one" {
		t.Errorf("polled: %s", a.raw)
	}
	if l := p.get(p.alice, "/v1/approvals"); l.at("total") != 2.0 || len(l.at("grants").([]any)) != 0 {
		t.Errorf("list: %s", l.raw)
	}
	if a := p.get(p.bob, "/v1/approvals/"+id); a.status != 404 {
		t.Errorf("another tenant reads it: %d", a.status)
	}
	for name, tt := range map[string]struct {
		a      answer
		status int
		code   string
	}{
		"the agent itself":    {p.decide(p.aliceAgent, id, "approve", ""), 403, "FORBIDDEN_FOR_AGENT"},
		"another tenant":      {p.decide(p.bob, id, "approve", ""), 404, "NOT_FOUND"},
		"for the key":         {p.decide(p.alice, id, "approve", "key"), 400, "INVALID_BODY"},
		"unknown decision":    {p.decide(p.alice, id, "maybe", ""), 400, "INVALID_BODY"},
		"unknown request":     {p.decide(p.alice, "apr_0000000000000000", "approve", ""), 404, "NOT_FOUND"},
		"an id that is no id": {p.decide(p.alice, "apr_..%2fx", "approve", ""), 404, "NOT_FOUND"},
	} {
		if tt.a.status != tt.status || tt.a.code() != tt.code {
			t.Errorf("%s: %d %s, want %d %s", name, tt.a.status, tt.a.raw, tt.status, tt.code)
		}
	}
	if a := p.decide(p.alice, id, "approve", ""); a.status != 200 || a.at("status") != "approved" || a.at("decidedBy") != "alice" {
		t.Fatalf("approved: %d %s", a.status, a.raw)
	}
	if a := p.decide(p.alice, id, "deny", ""); a.status != 409 {
		t.Errorf("decided twice: %d %s", a.status, a.raw)
	}
	// The approval is for this env and this once.
	p.must(428, drop("two"))
	p.must(202, drop("one"))
	p.eventually("the env goes", func() bool { return p.get(p.alice, "/v1/envs/one").status == 404 })
	p.makeEnv(p.alice, "one")
	p.must(428, drop("one"))
}

func TestApprovalDenied(t *testing.T) {
	p := newPlatform(t)
	p.makeEnv(p.alice, "one")
	drop := request{method: "DELETE", path: "/v1/envs/one", key: p.aliceAgent}
	id := p.must(428, drop).at("detail.approvalId").(string)
	if a := p.decide(p.alice, id, "deny", ""); a.at("status") != "denied" {
		t.Fatalf("denied: %s", a.raw)
	}
	if a := p.must(403, drop); a.code() != "FORBIDDEN" || !strings.Contains(string(a.raw), "denied") {
		t.Errorf("the denied call again: %s", a.raw)
	}
}

func TestGrants(t *testing.T) {
	p := newPlatform(t)
	item := "/v1/envs/demo/sandboxpools/" + p.makeEnv(p.alice, "demo")
	scale := func(n int, session string) answer {
		r := request{method: "PUT", path: item, key: p.aliceAgent, body: sized("1", "2Gi", "replicas", n)}
		if session != "" {
			r.header = map[string]string{"X-AgentBox-Session-Id": session}
		}
		return p.do(r)
	}
	if a := p.decide(p.alice, scale(5, "").at("detail.approvalId").(string), "approve", "session"); a.status != 400 {
		t.Errorf("a session that was not named: %d %s", a.status, a.raw)
	}
	p.decide(p.alice, scale(5, "s1").at("detail.approvalId").(string), "approve", "session")
	for _, tt := range []struct {
		n       int
		session string
		status  int
	}{{5, "s1", 200}, {6, "s1", 200}, {7, "s2", 428}, {7, "", 428}} {
		if a := scale(tt.n, tt.session); a.status != tt.status {
			t.Errorf("scale to %d in session %q: %d %s, want %d", tt.n, tt.session, a.status, a.raw, tt.status)
		}
	}
	second, _ := p.issue(access.Spec{Team: p.owner().Team, User: "alice", Agent: true})
	held := p.must(428, request{method: "PUT", path: item, key: second, body: sized("1", "2Gi", "replicas", 8)})
	p.decide(p.alice, held.at("detail.approvalId").(string), "approve", "key")
	p.must(200, request{method: "PUT", path: item, key: second, body: sized("1", "2Gi", "replicas", 9)})
	if a := scale(10, ""); a.status != 428 {
		t.Errorf("one agent's grant covers another: %d", a.status)
	}
	list := p.get(p.alice, "/v1/approvals?scope=key")
	if list.at("grantsTotal") != 1.0 {
		t.Fatalf("grants: %s", list.raw)
	}
	grant := "/v1/approvals/grants/" + list.at("grants.0.id").(string)
	p.must(403, request{method: "DELETE", path: grant, key: second})
	p.must(404, request{method: "DELETE", path: grant, key: p.bob})
	p.must(200, request{method: "DELETE", path: grant + "?dryRun=true", key: p.alice})
	p.must(204, request{method: "DELETE", path: grant, key: p.alice})
	p.must(404, request{method: "DELETE", path: grant, key: p.alice})
	p.must(428, request{method: "PUT", path: item, key: second, body: sized("1", "2Gi", "replicas", 11)})
}
