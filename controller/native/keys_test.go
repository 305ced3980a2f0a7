package native

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
)

func TestOwnKeys(t *testing.T) {
	p := newPlatform(t)
	create := func(key string, body map[string]any, query string) answer {
		return p.do(request{method: "POST", path: "/v1/api-keys" + query, key: key, body: body})
	}
	before := len(p.get(p.alice, "/v1/api-keys").list)
	if a := create(p.alice, map[string]any{"mode": "agent"}, "?dryRun=true"); a.status != 200 || strings.Contains(string(a.raw), "agbx_") {
		t.Errorf("dry run: %d %s", a.status, a.raw)
	}
	made := create(p.alice, map[string]any{"mode": "agent", "description": "bot", "expiresAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}, "")
	key, _ := made.at("apiKey").(string)
	if made.status != 201 || made.at("mode") != "agent" || made.at("role") != "tenant" || !strings.HasPrefix(key, "agbx_") {
		t.Fatalf("create: %d %s", made.status, made.raw)
	}
	if who := p.get(key, "/v1/auth/whoami"); who.at("mode") != "agent" || who.at("user") != "alice" {
		t.Errorf("whoami: %s", who.raw)
	}
	list := p.get(p.alice, "/v1/api-keys")
	if len(list.list) != before+1 || list.header.Get("X-Total-Count") == "" || strings.Contains(string(list.raw), strings.TrimPrefix(key, "agbx_")) {
		t.Errorf("list: %s", list.raw)
	}
	if agents := p.get(p.alice, "/v1/api-keys?mode=agent&limit=1"); len(agents.list) != 1 || agents.header.Get("X-Total-Count") != "2" {
		t.Errorf("filtered: %s of %s", agents.raw, agents.header.Get("X-Total-Count"))
	}
	for name, tt := range map[string]struct {
		key  string
		body map[string]any
		want int
	}{
		"by an agent":    {key, map[string]any{}, 403},
		"lapsed already": {p.alice, map[string]any{"expiresAt": "2001-01-01T00:00:00Z"}, 400},
		"no time":        {p.alice, map[string]any{"expiresAt": "tomorrow"}, 400},
		"another role":   {p.alice, map[string]any{"role": "admin"}, 400},
	} {
		if a := create(tt.key, tt.body, ""); a.status != tt.want {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.raw, tt.want)
		}
	}
	item := "/v1/api-keys/" + made.at("keyId").(string)
	p.must(404, request{method: "DELETE", path: item, key: p.bob})
	p.must(404, request{method: "DELETE", path: item, key: p.admin}) // another's: under /admin
	p.must(200, request{method: "DELETE", path: item + "?dryRun=true", key: p.alice})
	p.must(200, request{method: "DELETE", path: item, key: p.alice})
	p.must(401, request{method: "GET", path: "/v1/auth/whoami", key: key})
	// An administrator's agent administers nothing.
	if a := create(p.admin, map[string]any{"mode": "agent"}, ""); a.at("role") != "tenant" {
		t.Errorf("an admin's agent: %s", a.raw)
	}
	if a := create(p.admin, map[string]any{}, ""); a.at("role") != "admin" {
		t.Errorf("an admin's own key: %s", a.raw)
	}
}

func TestAdminKeys(t *testing.T) {
	p := newPlatform(t)
	create := func(body map[string]any) answer {
		return p.do(request{method: "POST", path: "/v1/admin/api-keys", key: p.admin, body: body})
	}
	made := create(map[string]any{"team": "green", "user": "gina"})
	if made.status != 201 || made.at("role") != "tenant" {
		t.Fatalf("create: %d %s", made.status, made.raw)
	}
	if who := p.get(made.at("apiKey").(string), "/v1/auth/whoami"); who.at("namespace") != "t-green-gina" {
		t.Errorf("whoami: %s", who.raw)
	}
	secret := "agbx_" + strings.Repeat("5", 64)
	sum := sha256.Sum256([]byte(secret))
	hash := hex.EncodeToString(sum[:])
	imported := create(map[string]any{"team": "green", "user": "gina", "tokenHash": hash, "hashPrefix": hash[:16], "issuedAt": "2025-01-01T00:00:00Z"})
	if imported.status != 201 || imported.at("apiKey") != nil || p.get(secret, "/v1/auth/whoami").status != 200 {
		t.Errorf("import: %d %s", imported.status, imported.raw)
	}
	for name, tt := range map[string]struct {
		body map[string]any
		want int
	}{
		"imported twice":  {map[string]any{"team": "green", "user": "gina", "tokenHash": hash}, 409},
		"wrong prefix":    {map[string]any{"team": "green", "user": "gina", "tokenHash": hash, "hashPrefix": strings.Repeat("0", 16)}, 400},
		"no team":         {map[string]any{"user": "gina"}, 400},
		"user no label":   {map[string]any{"team": "green", "user": "gina@example.com"}, 400},
		"issued, no hash": {map[string]any{"team": "green", "user": "gina", "issuedAt": "2025-01-01T00:00:00Z"}, 400},
	} {
		if a := create(tt.body); a.status != tt.want {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.raw, tt.want)
		}
	}
	if teams := p.get(p.admin, "/v1/admin/teams?name=green"); teams.at("items.0") != "green" {
		t.Errorf("teams: %s", teams.raw)
	}
	if users := p.get(p.admin, "/v1/admin/teams/green/users"); users.at("total") != 1.0 || users.at("items.0") != "gina" {
		t.Errorf("users: %s", users.raw)
	}
	p.must(404, request{method: "GET", path: "/v1/admin/teams/nobody/users", key: p.admin})
	if ns := p.get(p.admin, "/v1/admin/namespaces?name=green"); ns.at("items.0") != "t-green-gina" {
		t.Errorf("namespaces: %s", ns.raw)
	}
	p.must(501, request{method: "POST", path: "/v1/admin/api-keys/" + made.at("keyId").(string) + "/promote", key: p.admin})
	p.must(404, request{method: "POST", path: "/v1/admin/api-keys/0000000000000000/promote", key: p.admin})
	p.must(200, request{method: "DELETE", path: "/v1/admin/api-keys/" + made.at("keyId").(string), key: p.admin})
	for _, k := range p.get(p.admin, "/v1/admin/api-keys?role=admin").list {
		id := k.(map[string]any)["keyId"].(string)
		if a := p.do(request{method: "DELETE", path: "/v1/admin/api-keys/" + id, key: p.admin}); a.status != 409 {
			t.Errorf("the last admin key: %d %s", a.status, a.raw)
		}
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := newPlatform(t, func(o *Options) { o.Registerer = registry })
	p.get(p.alice, "/v1/auth/whoami")
	p.get("", "/v1/auth/whoami")
	p.get(p.alice, "/v1/nothing")
	want := `
# HELP agentbox_native_requests_total Requests to the native API that were answered.
# TYPE agentbox_native_requests_total counter
agentbox_native_requests_total{operation="GetWhoAmI",status="200"} 1
agentbox_native_requests_total{operation="GetWhoAmI",status="401"} 1
agentbox_native_requests_total{operation="none",status="404"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "agentbox_native_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestCatalogue(t *testing.T) {
	p := newPlatform(t)
	if a := p.get(p.alice, "/v1/instancetypes"); a.at("items.0.name") != "small" || a.at("items.0.baseResources.limits.memory") != "2Gi" {
		t.Errorf("instance types: %s", a.raw)
	}
	quotas := p.get(p.alice, "/v1/quotas")
	if quotas.at("total") != 2.0 || quotas.at("items.0.name") != "everyone-shared" || quotas.at("items.0.resources.free.small") != 10.0 {
		t.Errorf("quotas: %s", quotas.raw)
	}
	if spot := p.get(p.alice, "/v1/quotas?poolType=spot"); spot.at("total") != 1.0 || valueAt(spot.at("items.0.resources"), "free") != nil {
		t.Errorf("an uncapped quota: %s", spot.raw)
	}
	sc := "fast"
	for _, claim := range []corev1.PersistentVolumeClaim{
		{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}},
	} {
		claim.Namespace = p.aliceNS
		claim.Labels = map[string]string{v1alpha1.LabelTeam: p.owner().Team, v1alpha1.LabelUser: "alice"}
		claim.Spec = corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &sc,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
		}
		status := claim.Status
		if err := p.client.Create(t.Context(), &claim); err != nil {
			t.Fatal(err)
		}
		claim.Status = status
		if err := p.client.Status().Update(t.Context(), &claim); err != nil {
			t.Fatal(err)
		}
	}
	volumes := p.get(p.alice, "/v1/volumes")
	if volumes.at("total") != 1.0 || volumes.at("items.0.claimName") != "data" || volumes.at("items.0.capacity") != "5Gi" {
		t.Errorf("volumes: %s", volumes.raw)
	}
	if theirs := p.get(p.bob, "/v1/volumes"); theirs.at("total") != 0.0 {
		t.Errorf("another tenant's volumes: %s", theirs.raw)
	}
	mount := func(key, claim string) int {
		return p.do(request{method: "POST", path: "/v1/envs?dryRun=true", key: key, body: map[string]any{
			"name": "v", "templateRef": map[string]any{"name": p.template},
			"overrides": map[string]any{"volumes": []any{map[string]any{"claimName": claim, "mountPath": "/data"}}},
		}}).status
	}
	if got := []int{mount(p.alice, "data"), mount(p.alice, "later")}; got[0] != 200 || got[1] != 400 {
		t.Errorf("mounting a bound claim and one that is not: %v", got)
	}
	neighbour, _ := p.issue(access.Spec{Team: p.owner().Team, User: "mate", Namespace: p.aliceNS})
	if got := mount(neighbour, "data"); got != 400 {
		t.Errorf("mounting the claim of another user in the same namespace: %d", got)
	}
	bare := newPlatform(t, func(o *Options) {
		off := false
		o.Catalogue = &catalogue.Catalogue{FeatureGates: catalogue.FeatureGates{Volumes: &off}}
	})
	for _, path := range []string{"/v1/quotas", "/v1/instancetypes", "/v1/volumes"} {
		bare.must(501, request{method: "GET", path: path, key: bare.alice})
	}
	if g := bare.get(bare.alice, "/v1/feature-gates"); g.at("quota") != false || g.at("instanceType") != false || g.at("volumes") != false {
		t.Errorf("gates: %s", g.raw)
	}
}
