package native

import (
	"encoding/json"
	"strings"
	"testing"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func templateCRD(name string, change func(map[string]any)) map[string]any {
	crd := map[string]any{
		"apiVersion": "agents.navix.sh/v1alpha1", "kind": "SandboxTemplate",
		"metadata": map[string]any{"name": name, "annotations": map[string]any{v1alpha1.AnnotationDocs: "See ${AGBX_E2B_URL} with ${AGBX_API_KEY} and $HOME"}},
		"spec": map[string]any{
			"version": "1", "idleImage": "idle:1",
			"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
				"name": "sandbox", "image": "a:1", "resources": map[string]any{"limits": map[string]any{"cpu": "2", "memory": "1Gi"}},
			}}}},
		},
	}
	if change != nil {
		change(crd)
	}
	return map[string]any{"crd": crd}
}

func TestAdminTemplates(t *testing.T) {
	p := newPlatform(t)
	name := p.template + "-made"
	item := "/v1/admin/sandbox-templates/" + name
	create := func(body any, query string) answer {
		return p.do(request{method: "POST", path: "/v1/admin/sandbox-templates" + query, key: p.admin, body: body})
	}
	if a := create(templateCRD(name, nil), "?dryRun=true"); a.status != 200 || p.get(p.admin, item).status != 404 {
		t.Errorf("dry run: %d %s", a.status, a.raw)
	}
	made := create(templateCRD(name, nil), "")
	if made.status != 201 || made.at("template.cpu") != "2" {
		t.Fatalf("create: %d %s", made.status, made.raw)
	}
	t.Cleanup(func() { p.do(request{method: "DELETE", path: item, key: p.admin}) })
	read := p.must(200, request{method: "GET", path: "/v1/sandbox-templates/" + name, key: p.alice})
	docs, _ := read.at("template.docs").(string)
	if docs != "See http://example.com/e2b with ${AGBX_API_KEY} and $HOME" {
		t.Errorf("docs: %q", docs)
	}
	if yaml, _ := read.at("template.crdYaml").(string); !strings.Contains(yaml, "resourceVersion:") || strings.Contains(yaml, "managedFields") || read.at("editable") != nil {
		t.Errorf("read: %s", read.raw)
	}
	for what, body := range map[string]any{
		"another kind":           templateCRD(name+"x", func(c map[string]any) { c["kind"] = "Secret" }),
		"no name":                templateCRD("", nil),
		"unknown field":          templateCRD(name+"x", func(c map[string]any) { c["spec"].(map[string]any)["idelImage"] = "x" }),
		"no container":           templateCRD(name+"x", func(c map[string]any) { c["spec"].(map[string]any)["template"] = map[string]any{} }),
		"wrong type":             templateCRD(name+"x", func(c map[string]any) { c["spec"].(map[string]any)["version"] = 1 }),
		"both forms":             map[string]any{"crd": map[string]any{}, "crdJson": "{}"},
		"text that is no object": map[string]any{"crdJson": "[1]"},
		"nothing":                map[string]any{},
	} {
		if a := create(body, ""); a.status != 400 {
			t.Errorf("%s: %d %s", what, a.status, a.raw)
		}
	}
	if a := create(templateCRD(name, nil), ""); a.status != 409 {
		t.Errorf("made twice: %d", a.status)
	}

	// An unchanged editable changes nothing; the same as JSON text neither.
	admin := p.must(200, request{method: "GET", path: item, key: p.admin})
	text, _ := json.Marshal(admin.at("editable.crd"))
	for _, body := range []any{admin.at("editable"), map[string]any{"crdJson": string(text)}} {
		same := p.must(200, request{method: "PUT", path: item + "?dryRun=true", key: p.admin, body: body})
		if n := len(same.at("changes").([]any)); n != 0 {
			t.Errorf("an unchanged update changes %d fields: %s", n, same.raw)
		}
	}
	next := templateCRD(name, func(c map[string]any) { c["spec"].(map[string]any)["version"] = "2" })
	p.must(201, request{method: "POST", path: "/v1/envs", key: p.alice, body: map[string]any{"name": "user", "templateRef": map[string]any{"name": name}}})
	if dry := p.must(200, request{method: "PUT", path: item + "?dryRun=true", key: p.admin, body: next}); !strings.Contains(string(dry.raw), p.aliceNS+"/user") {
		t.Errorf("the dry run does not say who is affected: %s", dry.raw)
	}
	etag := map[string]string{"If-Match": admin.header.Get("ETag")}
	p.must(200, request{method: "PUT", path: item, key: p.admin, body: next, header: etag})
	p.must(412, request{method: "PUT", path: item, key: p.admin, body: next, header: etag})
	pinned := templateCRD(name, func(c map[string]any) { c["metadata"].(map[string]any)["resourceVersion"] = "1" })
	p.must(409, request{method: "PUT", path: item, key: p.admin, body: pinned})
	p.must(400, request{method: "PUT", path: item, key: p.admin, body: templateCRD("other", nil)})
	if a := p.must(409, request{method: "DELETE", path: item, key: p.admin}); !strings.Contains(string(a.raw), p.aliceNS+"/user") {
		t.Errorf("deleting what is in use: %s", a.raw)
	}
	p.must(202, request{method: "DELETE", path: "/v1/envs/user", key: p.alice})
	p.eventually("the env goes", func() bool { return p.get(p.alice, "/v1/envs/user").status == 404 })
	p.must(202, request{method: "DELETE", path: item, key: p.admin})
}

func TestTemplateVisibility(t *testing.T) {
	p := newPlatform(t)
	team := p.owner().Team
	p.createTemplate(p.template+"-ours", visibleTo(team))
	p.createTemplate(p.template+"-theirs", visibleTo("elsewhere"))
	names := func(key, path string) string {
		var out []string
		for _, row := range p.get(key, path).at("items").([]any) {
			out = append(out, strings.TrimPrefix(row.(map[string]any)["name"].(string), p.template))
		}
		return strings.Join(out, " ")
	}
	list := "?name=" + p.template
	for _, tt := range []struct{ key, path, want string }{
		{p.alice, "/v1/sandbox-templates" + list, " -ours"},
		{p.bob, "/v1/sandbox-templates" + list, ""},
		{p.admin, "/v1/sandbox-templates" + list, " -ours -theirs"},
		{p.admin, "/v1/admin/sandbox-templates" + list, " -ours -theirs"},
		{p.admin, "/v1/admin/sandbox-templates" + list + "&team=" + team, " -ours"},
	} {
		if got := names(tt.key, tt.path); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.path, got, tt.want)
		}
	}
	missing, foreign := p.get(p.alice, "/v1/sandbox-templates/nope"), p.get(p.alice, "/v1/sandbox-templates/"+p.template+"-theirs")
	if foreign.status != 404 || strings.ReplaceAll(foreign.at("error").(string), p.template+"-theirs", "nope") != missing.at("error") {
		t.Errorf("a foreign template reads %q, a missing one %q", foreign.at("error"), missing.at("error"))
	}
}
