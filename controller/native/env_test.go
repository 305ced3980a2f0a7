package native

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
)

func TestEnvLife(t *testing.T) {
	p := newPlatform(t)
	body := map[string]any{
		"name": "demo", "templateRef": map[string]any{"name": p.template, "version": "1.0"},
		"labels":    map[string]any{"purpose": "demo"},
		"overrides": map[string]any{"defaultIdleTimeout": "30m", "updateStrategy": map[string]any{"maxUnavailable": "50%"}},
	}
	dry := p.must(200, request{method: "POST", path: "/v1/envs?dryRun=true", key: p.alice, body: body})
	if dry.at("valid") != true || dry.at("changes.0.path") == nil {
		t.Errorf("dry run: %s", dry.raw)
	}
	p.must(404, request{method: "GET", path: "/v1/envs/demo", key: p.alice})

	made := p.must(201, request{method: "POST", path: "/v1/envs", key: p.alice, body: body})
	if made.at("env.namespace") != p.aliceNS || made.at("env.spec.mode") != "WarmPool" || made.at("env.labels.purpose") != "demo" {
		t.Errorf("made: %s", made.raw)
	}
	if again := p.must(409, request{method: "POST", path: "/v1/envs", key: p.alice, body: body}); again.code() != "CONFLICT" {
		t.Errorf("made twice: %s", again.raw)
	}
	docs := p.get(p.alice, "/v1/envs/demo").at("env.envDocs").(string)
	for _, want := range []string{"http://example.com/e2b", "Sandbox.create('demo'", "${AGBX_API_KEY}", "c-test"} {
		if !strings.Contains(docs, want) {
			t.Errorf("the docs lack %q:\n%s", want, docs)
		}
	}

	// What a read gives as editable is an update that changes nothing.
	editable := made.at("editable")
	etag := made.header.Get("ETag")
	same := p.must(200, request{method: "PUT", path: "/v1/envs/demo?dryRun=true", key: p.alice, body: editable, header: map[string]string{"If-Match": etag}})
	if n := len(same.at("changes").([]any)); n != 0 {
		t.Errorf("an unchanged update changes %d fields: %s", n, same.raw)
	}
	next := editable.(map[string]any)
	next["overrides"] = map[string]any{"image": "other:1"}
	diff := p.must(200, request{method: "PUT", path: "/v1/envs/demo?dryRun=true", key: p.alice, body: next})
	if !strings.Contains(string(diff.raw), `{"path":"overrides.defaultIdleTimeout","before":"30m","effect":"clear"}`) {
		t.Errorf("the dry run does not say what is cleared: %s", diff.raw)
	}
	done := p.must(200, request{method: "PUT", path: "/v1/envs/demo", key: p.alice, body: next, header: map[string]string{"If-Match": etag}})
	if done.at("env.spec.overrides.image") != "other:1" || done.at("env.spec.overrides.defaultIdleTimeout") != nil {
		t.Errorf("updated: %s", done.raw)
	}
	stale := p.must(412, request{method: "PUT", path: "/v1/envs/demo", key: p.alice, body: next, header: map[string]string{"If-Match": etag}})
	if stale.code() != "CONFLICT" {
		t.Errorf("stale If-Match: %s", stale.raw)
	}

	p.must(412, request{method: "DELETE", path: "/v1/envs/demo", key: p.alice, header: map[string]string{"If-Match": etag}})
	p.must(202, request{method: "DELETE", path: "/v1/envs/demo", key: p.alice, header: map[string]string{"If-Match": done.header.Get("ETag")}})
	p.eventually("the env goes", func() bool { return p.get(p.alice, "/v1/envs/demo").status == 404 })
}

func TestEnvRefusals(t *testing.T) {
	p := newPlatform(t)
	p.makeEnv(p.alice, "fixed")
	p.createTemplate(p.template+"-secret", visibleTo("elsewhere"))
	create := func(change func(map[string]any)) request {
		b := map[string]any{"name": "x", "templateRef": map[string]any{"name": p.template}}
		change(b)
		return request{method: "POST", path: "/v1/envs", key: p.alice, body: b}
	}
	update := func(change func(map[string]any)) request {
		b := map[string]any{"name": "fixed", "templateRef": map[string]any{"name": p.template}, "mode": "WarmPool"}
		change(b)
		return request{method: "PUT", path: "/v1/envs/fixed", key: p.alice, body: b}
	}
	tests := []struct {
		name   string
		r      request
		status int
		code   string
		text   string // in the error or its hints
	}{
		{"unknown key", create(func(b map[string]any) { b["overides"] = 1 }), 400, "INVALID_BODY", `did you mean \"overrides\"`},
		{"unknown key inside", create(func(b map[string]any) { b["overrides"] = map[string]any{"imgae": "x"} }), 400, "INVALID_BODY", `overrides has no key \"imgae\"`},
		{"no name", create(func(b map[string]any) { delete(b, "name") }), 400, "INVALID_BODY", "name"},
		{"long name", create(func(b map[string]any) { b["name"] = strings.Repeat("x", 25) }), 400, "INVALID_BODY", "name"},
		{"bad mode", create(func(b map[string]any) { b["mode"] = "Warm" }), 400, "INVALID_BODY", "must be one of WarmPool, OnDemandJob"},
		{"mode that is not there yet", create(func(b map[string]any) { b["mode"] = "OnDemandJob" }), 501, "NOT_IMPLEMENTED", "WarmPool"},
		{"unknown template", create(func(b map[string]any) { b["templateRef"] = map[string]any{"name": "nope"} }), 404, "NOT_FOUND", "nope"},
		{"template of others", create(func(b map[string]any) { b["templateRef"] = map[string]any{"name": p.template + "-secret"} }), 404, "NOT_FOUND", "-secret"},
		{"reserved label", create(func(b map[string]any) { b["labels"] = map[string]any{"scheduling.navix.sh/team": "x"} }), 400, "INVALID_BODY", "keeps for itself"},
		{"reserved annotation", create(func(b map[string]any) { b["annotations"] = map[string]any{"agentbox.navix.sh/x": "x"} }), 400, "INVALID_BODY", "keeps for itself"},
		{"bad duration", create(func(b map[string]any) { b["overrides"] = map[string]any{"defaultIdleTimeout": "soon"} }), 400, "INVALID_BODY", "defaultIdleTimeout"},
		{"zero duration", create(func(b map[string]any) { b["overrides"] = map[string]any{"defaultIdleTimeout": "0s"} }), 400, "INVALID_BODY", "defaultIdleTimeout"},
		{"no such volume", create(func(b map[string]any) {
			b["overrides"] = map[string]any{"volumes": []any{map[string]any{"claimName": "data", "mountPath": "/data"}}}
		}), 400, "INVALID_BODY", "there is no claim"},
		{"override that is no image", update(func(b map[string]any) { b["overrides"] = map[string]any{"image": "NOT AN IMAGE"} }), 400, "INVALID_BODY", "not an image reference: "},
		{"share above all", update(func(b map[string]any) {
			b["overrides"] = map[string]any{"updateStrategy": map[string]any{"maxUnavailable": "500%"}}
		}), 400, "INVALID_BODY", "maxUnavailable"},
		{"not JSON", request{method: "POST", path: "/v1/envs", key: p.alice, body: "{"}, 400, "INVALID_BODY", "not JSON"},
		{"no body", request{method: "POST", path: "/v1/envs", key: p.alice}, 400, "INVALID_BODY", "required"},
		{"other media type", request{method: "POST", path: "/v1/envs", key: p.alice, body: "a: 1", header: map[string]string{"Content-Type": "text/yaml"}}, 415, "UNSUPPORTED_MEDIA_TYPE", "application/json"},
		{"too large", request{method: "POST", path: "/v1/envs", key: p.alice, body: strings.Repeat(" ", maxBody+1)}, 413, "CONTENT_TOO_LARGE", "1 MiB"},
		{"unknown parameter", request{method: "GET", path: "/v1/envs?nmae=x", key: p.alice}, 400, "INVALID_PARAMETER", `did you mean \"name\"`},
		{"parameter out of range", request{method: "GET", path: "/v1/envs?limit=0", key: p.alice}, 400, "INVALID_PARAMETER", "limit"},
		{"value outside a closed set", request{method: "GET", path: "/v1/envs?mode=Warm", key: p.alice}, 400, "INVALID_PARAMETER", "WarmPool, OnDemandJob"},
		{"parameter twice", request{method: "GET", path: "/v1/envs?name=a&name=b", key: p.alice}, 400, "INVALID_PARAMETER", "2 times"},
		{"renamed", update(func(b map[string]any) { b["name"] = "other" }), 400, "INVALID_BODY", "must be"},
		{"other template", update(func(b map[string]any) { b["templateRef"] = map[string]any{"name": "other"} }), 400, "FIXED_FIELD", p.template},
		{"template left out", update(func(b map[string]any) { delete(b, "templateRef") }), 400, "INVALID_BODY", "templateRef"},
		{"other labels", update(func(b map[string]any) { b["labels"] = map[string]any{"a": "b"} }), 400, "FIXED_FIELD", "make a new env with the other labels"},
		{"update of what is not there", request{method: "PUT", path: "/v1/envs/gone", key: p.alice, body: map[string]any{"name": "gone", "templateRef": map[string]any{"name": "x"}}}, 404, "NOT_FOUND", "gone"},
		{"name that can be no name", request{method: "GET", path: "/v1/envs/..%2Fenvs", key: p.alice}, 404, "NOT_FOUND", ""},
		{"unknown path", request{method: "GET", path: "/v1/environments", key: p.alice}, 404, "NOT_FOUND", ""},
		{"empty id", request{method: "GET", path: "/v1/envs/", key: p.alice}, 404, "NOT_FOUND", ""},
		{"method that is not there", request{method: "PATCH", path: "/v1/envs/fixed", key: p.alice}, 405, "METHOD_NOT_ALLOWED", "GET"},
		{"body where none goes", request{method: "GET", path: "/v1/envs", key: p.alice, body: "{}"}, 400, "INVALID_BODY", "no body"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := p.do(tt.r)
			if a.status != tt.status || a.code() != tt.code || !strings.Contains(string(a.raw), tt.text) {
				t.Errorf("%d %s, want %d %s with %q", a.status, a.raw, tt.status, tt.code, tt.text)
			}
		})
	}
}

func TestRegistryLogins(t *testing.T) {
	p := newPlatform(t)
	logins := map[string]any{"registries": []any{map[string]any{"registry": "r.example.com", "username": "u", "password": "hunter2"}}}
	body := map[string]any{"name": "private", "templateRef": map[string]any{"name": p.template}, "overrides": map[string]any{"imagePullSecret": logins}}
	dry := p.must(200, request{method: "POST", path: "/v1/envs?dryRun=true", key: p.alice, body: body})
	made := p.must(201, request{method: "POST", path: "/v1/envs", key: p.alice, body: body})
	read := p.must(200, request{method: "GET", path: "/v1/envs/private", key: p.alice})
	for _, a := range []answer{dry, made, read} {
		if strings.Contains(string(a.raw), "hunter2") {
			t.Errorf("an answer holds the password: %s", a.raw)
		}
	}
	if read.at("editable.overrides.imagePullSecretConfigured") != true {
		t.Errorf("read: %s", read.raw)
	}
	secret := p.pullSecretOf("private")
	if secret == nil || !strings.Contains(string(secret.Data[".dockerconfigjson"]), "hunter2") || len(secret.OwnerReferences) != 1 {
		t.Fatalf("the stored logins: %v", secret)
	}
	put := func(o any, query string) answer {
		b := map[string]any{"name": "private", "templateRef": map[string]any{"name": p.template}, "mode": "WarmPool"}
		if o != nil {
			b["overrides"] = o
		}
		return p.must(200, request{method: "PUT", path: "/v1/envs/private" + query, key: p.alice, body: b})
	}
	put(map[string]any{"imagePullSecretConfigured": true, "image": "box:1"}, "")
	if p.pullSecretOf("private") == nil {
		t.Error("imagePullSecretConfigured did not keep the logins")
	}
	before := p.get(p.alice, "/v1/envs/private").header.Get("ETag")
	logins["registries"].([]any)[0].(map[string]any)["password"] = "other"
	if after := put(map[string]any{"imagePullSecret": logins, "image": "box:1"}, "").header.Get("ETag"); after == before {
		t.Error("new logins are the same version")
	}
	if dry := put(nil, "?dryRun=true"); !strings.Contains(string(dry.raw), "deleted") || p.pullSecretOf("private") == nil {
		t.Errorf("a dry run that leaves the logins out: %s", dry.raw)
	}
	put(nil, "")
	if p.pullSecretOf("private") != nil {
		t.Error("the logins were left out and are still there")
	}
}

// TestEnvInADeletedNamespace: whoever deletes a tenant's namespace does not lock the tenant out.
func TestEnvInADeletedNamespace(t *testing.T) {
	p := newPlatform(t)
	body := map[string]any{"name": "demo", "templateRef": map[string]any{"name": p.template}}
	key, namespace := p.issue(access.Spec{Team: p.owner().Team, User: "moved"})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := p.client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	// No collector runs here, which would empty it first.
	if err := p.client.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if a := p.must(404, request{method: "POST", path: "/v1/envs?dryRun=true", key: key, body: body}); !strings.Contains(string(a.raw), namespace) {
		t.Errorf("a dry run does not say what is missing: %s", a.raw)
	}
	p.must(201, request{method: "POST", path: "/v1/envs", key: key, body: body})
}
