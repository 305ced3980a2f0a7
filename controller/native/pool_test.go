package native

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func sized(cpu, memory string, more ...any) map[string]any {
	b := map[string]any{"inlineResources": map[string]any{"requests": map[string]any{"cpu": cpu, "memory": memory}}}
	for i := 0; i < len(more); i += 2 {
		b[more[i].(string)] = more[i+1]
	}
	return b
}

func billed(n int, more ...any) map[string]any {
	b := map[string]any{"instanceType": "small", "replicas": n, "labels": map[string]any{v1alpha1.LabelQuotaURL: "everyone-shared"}}
	for i := 0; i < len(more); i += 2 {
		b[more[i].(string)] = more[i+1]
	}
	return b
}

func TestPoolLife(t *testing.T) {
	p := newPlatform(t)
	p.makeEnv(p.alice, "demo") // with demo-1c2gi, 4 replicas
	const pools = "/v1/envs/demo/sandboxpools"
	item := pools + "/demo-1c2gi"

	list := p.must(200, request{method: "GET", path: pools, key: p.alice})
	if list.at("total") != 1.0 || list.at("items.0.name") != "demo-1c2gi" || list.at("items.0.spec.replicas") != 4.0 || list.at("items.0.cpu") != "1" {
		t.Errorf("list: %s", list.raw)
	}
	if a := p.must(409, request{method: "POST", path: pools, key: p.alice, body: sized("1000m", "2048Mi")}); !strings.Contains(string(a.raw), "demo-1c2gi") {
		t.Errorf("the same shape twice: %s", a.raw)
	}
	dry := p.must(200, request{method: "POST", path: pools + "?dryRun=true", key: p.alice, body: sized("500m", "1536Mi", "replicas", 2)})
	if !strings.Contains(string(dry.raw), `"after":"demo-500mc1536mi"`) {
		t.Errorf("dry run: %s", dry.raw)
	}

	for _, number := range []string{"1e3", "2.0", "3000000000"} {
		body := json.RawMessage(`{"inlineResources":{"requests":{"cpu":"1","memory":"3Gi"}},"replicas":` + number + `}`)
		want := "replicas is number " + number + " and must be a whole number in decimal digits, of 32 bits"
		if a := p.must(400, request{method: "POST", path: pools, key: p.alice, body: body}); !strings.Contains(string(a.raw), want) {
			t.Errorf("replicas %s: %s", number, a.raw)
		}
	}

	read := p.must(200, request{method: "GET", path: item, key: p.alice})
	etag := read.header.Get("ETag")
	editable := read.at("editable").(map[string]any)
	if n := len(p.must(200, request{method: "PUT", path: item + "?dryRun=true", key: p.alice, body: editable}).at("changes").([]any)); n != 0 {
		t.Errorf("an unchanged update changes %d fields", n)
	}
	editable["replicas"], editable["maxReplicas"] = 6, 8
	scaled := p.must(200, request{method: "PUT", path: item, key: p.alice, body: editable, header: map[string]string{"If-Match": etag}})
	if scaled.at("template.spec.replicas") != 6.0 || scaled.at("editable.maxReplicas") != 8.0 {
		t.Errorf("scaled: %s", scaled.raw)
	}
	p.must(412, request{method: "PUT", path: item, key: p.alice, body: editable, header: map[string]string{"If-Match": etag}})
	if before, after := read.at("template.generation").(float64), scaled.at("template.generation").(float64); after <= before || scaled.at("template.status.observedGeneration") == after {
		t.Errorf("generation %v, after a change %v: %s", before, after, scaled.raw)
	}
	env := &v1alpha1.SandboxEnv{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: p.aliceNS, Name: "demo"}, env); err != nil {
		t.Fatal(err)
	}
	env.Status.ObservedGeneration = env.Generation
	if err := p.client.Status().Update(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	for path, object := range map[string]string{item: "template", "/v1/envs/demo": "env"} {
		if a := p.get(p.alice, path); a.at(object+".generation") != float64(env.Generation) || a.at(object+".status.observedGeneration") != float64(env.Generation) {
			t.Errorf("%s does not say that its status is of generation %d: %s", path, env.Generation, a.raw)
		}
	}
	delete(editable, "replicas")
	if kept := p.must(200, request{method: "PUT", path: item, key: p.alice, body: editable}); kept.at("template.spec.replicas") != 6.0 {
		t.Errorf("an update without replicas: %s", kept.raw)
	}
	// A status is no new version.
	p.setPoolStatus("demo-1c2gi")
	p.must(200, request{method: "PUT", path: item, key: p.alice, body: editable, header: map[string]string{"If-Match": p.get(p.alice, item).header.Get("ETag")}})
	if now := p.get(p.alice, item); now.header.Get("ETag") != scaled.header.Get("ETag") || now.at("template.status.phase") != "Ready" {
		t.Errorf("after a status: ETag %s, was %s: %s", now.header.Get("ETag"), scaled.header.Get("ETag"), now.raw)
	}

	gone := p.must(200, request{method: "DELETE", path: item + "?dryRun=true", key: p.alice})
	if !strings.Contains(string(gone.raw), `{"kind":"scaling-group","name":"1c2gi"}`) {
		t.Errorf("dry run of the deletion: %s", gone.raw)
	}
	p.must(202, request{method: "DELETE", path: item, key: p.alice})
	p.must(404, request{method: "GET", path: item, key: p.alice})
	if groups := p.get(p.alice, "/v1/envs/demo/autoscaling/groups"); groups.at("total") != 0.0 {
		t.Errorf("the last pool left its group: %s", groups.raw)
	}
}

// setPoolStatus does what the reconcilers do: a pool object, and a status.
func (p *testPlatform) setPoolStatus(name string) {
	p.t.Helper()
	pool := &v1alpha1.SandboxPool{}
	pool.Name, pool.Namespace = name, p.aliceNS
	if err := p.client.Create(p.t.Context(), pool); err != nil {
		p.t.Fatal(err)
	}
	pool.Status.Phase = v1alpha1.PoolReady
	if err := p.client.Status().Update(p.t.Context(), pool); err != nil {
		p.t.Fatal(err)
	}
}

func TestPoolRefusals(t *testing.T) {
	p := newPlatform(t)
	p.makeEnv(p.alice, "demo")
	for _, sizing := range []string{"billed", "free-form"} {
		p.createTemplate(p.template+"-"+sizing, func(t *v1alpha1.SandboxTemplate) { t.Annotations = map[string]string{annotationSizing: sizing} })
		p.must(201, request{method: "POST", path: "/v1/envs", key: p.alice, body: map[string]any{"name": sizing, "templateRef": map[string]any{"name": p.template + "-" + sizing}}})
	}
	quota := func(name string) map[string]any { return map[string]any{v1alpha1.LabelQuotaURL: name} }
	tests := []struct {
		name, env string
		body      map[string]any
		status    int
		code      string
		text      string
	}{
		{"no size", "demo", map[string]any{}, 400, "INVALID_BODY", "inlineResources"},
		{"negative", "demo", sized("-1", "2Gi"), 400, "INVALID_BODY", "cpu"},
		{"not a quantity", "demo", sized("lots", "2Gi"), 400, "INVALID_BODY", "inlineResources.requests.cpu"},
		{"bounds", "demo", sized("2", "2Gi", "minReplicas", 3, "maxReplicas", 2), 400, "INVALID_BODY", "above maxReplicas"},
		{"endless", "demo", sized("2", "2Gi", "replicas", 1000000), 400, "INVALID_BODY", "10000"},
		{"unknown type", "demo", map[string]any{"instanceType": "smal"}, 400, "INVALID_BODY", `did you mean \"small\"`},
		{"multiplier alone", "demo", sized("1", "2Gi", "multiplier", 2), 400, "INVALID_BODY", "instanceType"},
		{"multiplier too large", "demo", map[string]any{"instanceType": "small", "multiplier": 5}, 400, "INVALID_BODY", "at most 4"},
		{"above the envelope", "demo", sized("3", "2Gi", "instanceType", "small", "multiplier", 2), 400, "INVALID_BODY", "is 3"},
		{"a dimension that the type lacks", "demo", map[string]any{"instanceType": "small", "inlineResources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1"}}}, 400, "INVALID_BODY", "nvidia.com/gpu"},
		{"quota without a type", "demo", sized("1", "1Gi", "labels", quota("everyone-shared")), 400, "INVALID_BODY", "instanceType"},
		{"unknown quota", "demo", billed(1, "labels", quota("everyone-shred")), 400, "INVALID_BODY", "everyone-shared"},
		{"another team's quota", "demo", billed(1, "labels", quota("other-team")), 400, "INVALID_BODY", "there is no quota"},
		{"more than the quota", "demo", billed(11), 429, "QUOTA_EXCEEDED", "10 of 10"},
		{"billed without quota", "billed", map[string]any{"instanceType": "small"}, 400, "INVALID_BODY", v1alpha1.LabelQuotaURL},
		{"billed without type", "billed", sized("1", "2Gi", "labels", quota("everyone-shared")), 400, "INVALID_BODY", "instanceType is needed"},
		{"free-form with type", "free-form", map[string]any{"instanceType": "small"}, 400, "INVALID_BODY", "free-form"},
		{"free-form with quota", "free-form", sized("1", "2Gi", "labels", quota("everyone-shared")), 400, "INVALID_BODY", "free-form"},
		{"unknown key", "demo", map[string]any{"replica": 1}, 400, "INVALID_BODY", `did you mean \"replicas\"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, query := range []string{"?dryRun=true", ""} {
				a := p.do(request{method: "POST", path: "/v1/envs/" + tt.env + "/sandboxpools" + query, key: p.alice, body: tt.body})
				if a.status != tt.status || a.code() != tt.code || !strings.Contains(string(a.raw), tt.text) {
					t.Errorf("%s: %d %s, want %d %s with %q", query, a.status, a.raw, tt.status, tt.code, tt.text)
				}
			}
		})
	}
	fixed := p.do(request{method: "PUT", path: "/v1/envs/demo/sandboxpools/demo-1c2gi", key: p.alice, body: sized("2", "4Gi", "replicas", 4)})
	if fixed.status != 400 || fixed.code() != "FIXED_FIELD" || !strings.Contains(string(fixed.raw), "add another member pool") {
		t.Errorf("another shape: %d %s", fixed.status, fixed.raw)
	}
}

func TestScalingGroup(t *testing.T) {
	p := newPlatform(t)
	pool := "/v1/envs/demo/sandboxpools/" + p.makeEnv(p.alice, "demo")
	const groups = "/v1/envs/demo/autoscaling/groups"
	item := groups + "/1c2gi"
	read := p.must(200, request{method: "GET", path: item, key: p.alice})
	if read.at("group.enabled") != false || read.at("group.scaleUpPolicy.cooldownSeconds") != 30.0 {
		t.Errorf("a new group: %s", read.raw)
	}
	p.must(200, request{method: "GET", path: "/v1/envs/demo/autoscaling", key: p.alice})
	p.must(404, request{method: "GET", path: groups + "/9c9gi", key: p.alice})
	for name, body := range map[string]map[string]any{
		"Aggressive without a ceiling": {"enabled": true, "scaleUpPolicy": map[string]any{"mode": "Aggressive"}},
		"floor above the ceiling":      {"minReplicas": 5, "maxReplicas": 4},
		"unknown key":                  {"scaleUpPolicy": map[string]any{"cooldown": 1}},
	} {
		if a := p.do(request{method: "PUT", path: item, key: p.alice, body: body}); a.status != 400 {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	body := map[string]any{"enabled": true, "minReplicas": 1, "maxReplicas": 6, "scaleDownPolicy": map[string]any{"idleTimeoutSeconds": 60}}
	dry := p.must(200, request{method: "PUT", path: item + "?dryRun=true", key: p.alice, body: body})
	if !strings.Contains(string(dry.raw), `"path":"enabled","before":false,"after":true`) {
		t.Errorf("dry run: %s", dry.raw)
	}
	done := p.must(200, request{method: "PUT", path: item, key: p.alice, body: body, header: map[string]string{"If-Match": read.header.Get("ETag")}})
	if done.at("group.enabled") != true || done.at("group.scaleDownPolicy.stabilizationSeconds") != 60.0 {
		t.Errorf("updated: %s", done.raw)
	}
	p.must(412, request{method: "PUT", path: item, key: p.alice, body: body, header: map[string]string{"If-Match": read.header.Get("ETag")}})

	// A group that scales by itself owns the size of its pools.
	editable := p.get(p.alice, pool).at("editable").(map[string]any)
	if _, has := editable["replicas"]; has {
		t.Errorf("editable has replicas while the group scales by itself: %v", editable)
	}
	editable["replicas"] = 4 // what it is now
	p.must(200, request{method: "PUT", path: pool, key: p.alice, body: editable})
	editable["replicas"] = 5
	if a := p.must(400, request{method: "PUT", path: pool, key: p.alice, body: editable}); !strings.Contains(string(a.raw), "scales by itself") {
		t.Errorf("replicas in an enabled group: %s", a.raw)
	}
	p.must(409, request{method: "DELETE", path: item, key: p.alice})
}

func TestQuotaIsChargedAtomically(t *testing.T) {
	p := newPlatform(t)
	used := func() float64 {
		v, _ := p.get(p.alice, "/v1/quotas?name=everyone").at("items.0.resources.used.small").(float64)
		return v
	}
	const writers = 8
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range writers {
		env := fmt.Sprintf("e%d", i)
		p.must(201, request{method: "POST", path: "/v1/envs", key: p.alice, body: map[string]any{"name": env, "templateRef": map[string]any{"name": p.template}}})
		all.Go(func() {
			a := p.do(request{method: "POST", path: "/v1/envs/" + env + "/sandboxpools", key: p.alice, body: billed(3),
				header: map[string]string{"X-Request-Id": "the-same-for-all"}}) // which clients choose
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	all.Wait()
	if statuses[202] != 3 || statuses[429] != writers-3 {
		t.Fatalf("of %d writers of 3 units into 10: %v, want 3 accepted and the others 429", writers, statuses)
	}
	if used() != 9 {
		t.Errorf("used is %v, want 9", used())
	}
	var env string
	for i := range writers {
		if p.get(p.alice, fmt.Sprintf("/v1/envs/e%d/sandboxpools", i)).at("total") == 1.0 {
			env = fmt.Sprintf("e%d", i)
		}
	}
	item := "/v1/envs/" + env + "/sandboxpools/" + env + "-1c2gi-shared"
	p.must(429, request{method: "PUT", path: item, key: p.alice, body: billed(5)})
	p.must(429, request{method: "PUT", path: item + "?dryRun=true", key: p.alice, body: billed(5)})
	p.must(200, request{method: "PUT", path: item, key: p.alice, body: billed(4)})
	p.must(200, request{method: "PUT", path: item, key: p.alice, body: billed(1)})
	if used() != 7 {
		t.Errorf("after 3, 4 and 1: used is %v, want 7", used())
	}
	p.must(202, request{method: "DELETE", path: "/v1/envs/" + env, key: p.alice})
	if used() != 6 {
		t.Errorf("after a deletion: used is %v, want 6", used())
	}
	// What somebody writes past the API is found, and what vanished is given back.
	if err := p.h.ledger.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if used() != 6 {
		t.Errorf("after a comparison: used is %v, want 6", used())
	}
}

func TestBrokenQuotaIsClosed(t *testing.T) {
	p := newPlatform(t)
	p.must(201, request{method: "POST", path: "/v1/envs", key: p.alice, body: map[string]any{"name": "demo", "templateRef": map[string]any{"name": p.template}}})
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"agentbox.navix.sh/quota-held":"not json"}}}`))
	q := &corev1.ResourceQuota{}
	q.Name, q.Namespace = "quota-shared", p.h.SystemNamespace
	if err := p.client.Patch(t.Context(), q, patch); err != nil {
		t.Fatal(err)
	}
	if a := p.do(request{method: "POST", path: "/v1/envs/demo/sandboxpools", key: p.alice, body: billed(1)}); a.status != 500 {
		t.Errorf("a pool against a quota that cannot be read: %d %s", a.status, a.raw)
	}
}

func TestIfMatchLetsOneWriterThrough(t *testing.T) {
	p := newPlatform(t)
	item := "/v1/envs/demo/sandboxpools/" + p.makeEnv(p.alice, "demo")
	etag := p.get(p.alice, item).header.Get("ETag")
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range 8 {
		all.Go(func() {
			a := p.do(request{method: "PUT", path: item, key: p.alice, body: sized("1", "2Gi", "replicas", 10+i), header: map[string]string{"If-Match": etag}})
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	all.Wait()
	if statuses[200] != 1 || statuses[412] != 7 {
		t.Errorf("eight writers with one version: %v, want one 200 and seven 412", statuses)
	}
}
