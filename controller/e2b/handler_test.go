package e2b

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/agentbox/controller/claim"
)

func TestMountsAndHosts(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Domain = "box.test" })
	for _, base := range []string{"/e2b", "/e2b/v1", "/agent-sandbox/api/e2b"} {
		f.base = base
		if a := f.call(aliceKey, "GET", "/v2/sandboxes", ""); a.Status != 200 {
			t.Errorf("%s: %d %s", base, a.Status, a.Body)
		}
		if a := f.call("", "GET", "/health", ""); a.Status != 204 {
			t.Errorf("%s: %d %s", base, a.Status, a.Body)
		}
	}
	f.base = ""
	r, err := http.NewRequest("POST", f.server.URL+"/v2/sandboxes", strings.NewReader(`{"templateID":"default"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "api.box.test:8443"
	r.Header.Set("Authorization", "Bearer "+aliceKey)
	a := f.send(r)
	var sb sandboxBody
	a.decode(t, &sb)
	if a.Status != 201 || sb.Domain == nil || *sb.Domain != "box.test:8443" {
		t.Errorf("%d %s; want the domain as the client reaches it", a.Status, a.Body)
	}
	for _, path := range []string{"/", "/e2bx/health", "/v1/envs"} {
		r, err := http.NewRequest("GET", "http://127.0.0.1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if New(Options{Domain: "box.test"}).Match(r) {
			t.Errorf("%s is taken for the E2B API", path)
		}
	}
}

func TestKeys(t *testing.T) {
	f := newFixture(t, nil)
	sb := f.create(aliceKey, `{"templateID":"default"}`)
	for _, tc := range []struct {
		name   string
		header [2]string
		path   string
		status int
	}{
		{"X-API-KEY", [2]string{"X-API-KEY", aliceKey}, "/sandboxes", 200},
		{"AGENTBOX-API-KEY", [2]string{"AGENTBOX-API-KEY", aliceKey}, "/sandboxes", 200},
		{"bearer", [2]string{"Authorization", "bearer " + aliceKey}, "/sandboxes", 200},
		{"basic", [2]string{"Authorization", "Basic " + aliceKey}, "/sandboxes", 401},
		{"none", [2]string{}, "/sandboxes", 401},
		{"wrong", [2]string{"X-API-KEY", "e2b_00"}, "/sandboxes", 401},
		{"path that ends in health", [2]string{}, "/sandboxes/health", 401},
		{"health with a slash", [2]string{}, "/health/", 401},
		{"unknown route", [2]string{}, "/nothing", 401},
		{"agent key", [2]string{"X-API-KEY", agentKey}, "/sandboxes/" + sb.SandboxID, 200},
	} {
		r, err := http.NewRequest("GET", f.server.URL+"/e2b"+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.header[0] != "" {
			r.Header.Set(tc.header[0], tc.header[1])
		}
		if a := f.send(r); a.Status != tc.status {
			t.Errorf("%s: %d %s; want %d", tc.name, a.Status, a.Body, tc.status)
		}
	}
	if a := f.call(agentKey, "POST", "/v2/sandboxes", `{"templateID":"default"}`); a.Status != 201 {
		t.Errorf("an agent cannot create a sandbox: %d %s", a.Status, a.Body)
	}
}

// TestTenants asks every route about a sandbox as its owner, as a stranger and about one that does not exist.
func TestTenants(t *testing.T) {
	for _, rt := range []struct{ method, path, body string }{
		{"GET", "/sandboxes/{id}", ""},
		{"DELETE", "/sandboxes/{id}", ""},
		{"POST", "/sandboxes/{id}/timeout", `{"timeout":5}`},
		{"POST", "/sandboxes/{id}/refreshes", `{"duration":5}`},
		{"POST", "/sandboxes/{id}/connect", `{"timeout":5}`},
		{"POST", "/v2/sandboxes/{id}/connect", ""},
		{"POST", "/sandboxes/{id}/resume", `{"timeout":5}`},
		{"GET", "/sandboxes/{id}/logs", ""},
		{"GET", "/v2/sandboxes/{id}/logs", ""},
		{"GET", "/sandboxes/{id}/metrics", ""},
	} {
		f := newFixture(t, nil)
		sb := f.create(aliceKey, `{"templateID":"default"}`)
		foreign := f.call(bobKey, rt.method, strings.ReplaceAll(rt.path, "{id}", sb.SandboxID), rt.body)
		missing := f.call(bobKey, rt.method, strings.ReplaceAll(rt.path, "{id}", "inone"), rt.body)
		if foreign.Status != 404 || missing.Status != 404 ||
			strings.ReplaceAll(string(foreign.Body), sb.SandboxID, "inone") != string(missing.Body) {
			t.Errorf("%s %s: foreign %d %s, missing %d %s", rt.method, rt.path, foreign.Status, foreign.Body, missing.Status, missing.Body)
		}
		if a := f.call(aliceKey, rt.method, strings.ReplaceAll(rt.path, "{id}", sb.SandboxID), rt.body); a.Status == 404 || a.Status == 401 || a.Status == 403 {
			t.Errorf("%s %s by its owner: %d %s", rt.method, rt.path, a.Status, a.Body)
		}
		if a := f.call(aliceKey, rt.method, strings.ReplaceAll(rt.path, "{id}", "I%2F.."), rt.body); a.Status != 400 {
			t.Errorf("%s %s with a bad id: %d %s", rt.method, rt.path, a.Status, a.Body)
		}
	}
}

func TestLifecycle(t *testing.T) {
	f := newFixture(t, nil)
	sb := f.create(aliceKey, `{"templateID":"default","timeout":100,"metadata":{"k":"v"}}`)
	path := "/sandboxes/" + sb.SandboxID
	end := func() time.Duration {
		var d detailBody
		f.call(aliceKey, "GET", path+"-6532622b", "").decode(t, &d)
		return d.EndAt.Sub(f.claims.now)
	}
	for _, step := range []struct {
		method, path, body string
		status             int
		end                time.Duration
	}{
		{"POST", path + "/connect", `{"timeout":50}`, 200, 100 * time.Second},
		{"POST", path + "/connect", `{"timeout":0}`, 200, 100 * time.Second},
		{"POST", path + "/connect", `{}`, 400, 100 * time.Second},
		{"POST", path + "/connect", `{"timeout":-1}`, 400, 100 * time.Second},
		{"POST", path + "/connect", `{"timeout":150,"memory":false}`, 200, 150 * time.Second},
		{"POST", "/v2" + path + "/connect", ``, 200, 300 * time.Second},
		{"POST", "/v2" + path + "/connect", `{}`, 200, 300 * time.Second},
		{"POST", "/v2" + path + "/connect", `{"timeout":10}`, 200, 300 * time.Second},
		{"POST", path + "/timeout", `{"timeout":20}`, 204, 20 * time.Second},
		{"POST", path + "/timeout", `{"timeout":0}`, 400, 20 * time.Second},
		{"POST", path + "/timeout", `{"timeout":-5}`, 400, 20 * time.Second},
		{"POST", path + "/timeout", `{}`, 400, 20 * time.Second},
		{"POST", path + "/timeout", ``, 400, 20 * time.Second},
		{"POST", path + "/refreshes", `{"duration":5}`, 204, 20 * time.Second},
		{"POST", path + "/refreshes", ``, 204, 20 * time.Second},
		{"POST", path + "/refreshes", `{"duration":3600}`, 204, time.Hour},
		{"POST", path + "/refreshes", `{"duration":3601}`, 400, time.Hour},
		{"POST", path + "/resume", `{"timeout":1}`, 409, time.Hour},
		{"PUT", path + "/timeout", `{"timeout":1}`, 405, time.Hour},
	} {
		a := f.call(aliceKey, step.method, step.path, step.body)
		if a.Status != step.status {
			t.Errorf("%s %s %s: %d %s; want %d", step.method, step.path, step.body, a.Status, a.Body, step.status)
		}
		if got := end(); got != step.end {
			t.Errorf("after %s %s %s the sandbox ends in %s; want %s", step.method, step.path, step.body, got, step.end)
		}
	}
	var d detailBody
	f.call(aliceKey, "GET", path, "").decode(t, &d)
	if d.State != "running" || d.CPUCount != 2 || d.MemoryMB != 512 || d.Metadata["k"] != "v" || d.TemplateID != "default" || d.EnvdAccessToken != "token" {
		t.Errorf("detail %+v", d)
	}
	if a := f.call(aliceKey, "DELETE", path, ""); a.Status != 204 {
		t.Errorf("kill: %d %s", a.Status, a.Body)
	}
	if a := f.call(aliceKey, "DELETE", path, ""); a.Status != 404 {
		t.Errorf("kill again: %d %s", a.Status, a.Body)
	}
}

func TestEndlessSandbox(t *testing.T) {
	f := newFixture(t, nil)
	sb := f.create(aliceKey, `{"templateID":"patient"}`)
	var d detailBody
	f.call(aliceKey, "GET", "/sandboxes/"+sb.SandboxID, "").decode(t, &d)
	if !d.EndAt.Equal(never) {
		t.Errorf("endAt %s", d.EndAt)
	}
}

// TestUnsupported holds every route that is not there to a 501 that says what is missing.
func TestUnsupported(t *testing.T) {
	metrics := prometheus.NewRegistry()
	f := newFixture(t, func(o *Options) { o.Registerer = metrics })
	for _, m := range Unsupported {
		path := strings.ReplaceAll(m.Path, "{path...}", "a/b%2Fc/d")
		for _, p := range []string{"sandboxID", "templateID", "buildID", "hash", "secretID", "volumeID", "teamID", "nodeID", "accessTokenID", "apiKeyID"} {
			path = strings.ReplaceAll(path, "{"+p+"}", "x%2Fy")
		}
		a := f.call(aliceKey, m.Method, path, "")
		var e errorBody
		a.decode(t, &e)
		if a.Status != 501 || e.ErrorCode != codeNotImplemented || !strings.Contains(e.Message, m.Feature) {
			t.Errorf("%s %s: %d %s", m.Method, m.Path, a.Status, a.Body)
		}
	}
	families, err := metrics.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != len(Unsupported) || families[0].Metric[0].Counter.GetValue() != 1 {
		t.Errorf("counted %v, %v; want each of %d operations once", families, err, len(Unsupported))
	}
	if a := f.call(aliceKey, "GET", "/no/such/route", ""); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := f.call(aliceKey, "GET", "/admin/", ""); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	a := f.call(aliceKey, "POST", "/sandboxes/x/logs", "{}")
	if a.Status != 405 || a.Header.Get("Allow") != "GET" {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
	}
}

func TestBrowsers(t *testing.T) {
	f := newFixture(t, nil)
	r, err := http.NewRequest("OPTIONS", f.server.URL+"/e2b/v2/sandboxes", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != 204 || !strings.Contains(response.Header.Get("Access-Control-Expose-Headers"), "X-Next-Token") {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
}

// TestDocumentIsServed finds every operation of the document in the routing table and the other way round.
func TestDocumentIsServed(t *testing.T) {
	doc, err := loadDocument()
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented[method+" "+path] = true
		}
	}
	if !documented["GET /health"] {
		t.Error("GET /health is not in the document")
	}
	delete(documented, "GET /health")
	missing := map[string]bool{}
	for _, m := range Unsupported {
		missing[m.Method+" "+m.Path] = true
	}
	for _, r := range New(Options{Claims: claim.Service(nil)}).routes() {
		name := r.Method + " " + r.Path
		if !documented[name] && !missing[name] {
			t.Errorf("%s is served and not in the document", name)
		}
		if documented[name] && missing[name] {
			t.Errorf("%s is in the document and answers 501", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is in the document and not served", name)
	}
}
