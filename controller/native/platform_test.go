package native

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/controller/embedded/apiserver/apiservertest"
)

var apiConfig *rest.Config

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(apiservertest.Main(m, func(c *rest.Config) { apiConfig = c }))
}

var platforms atomic.Int64

// testPlatform is the API on the embedded Kubernetes API, with keys of two tenants. Each has a system namespace and
// teams of its own, so that tests do not meet.
type testPlatform struct {
	t       testing.TB
	h       *Handler
	client  client.WithWatch
	keys    *access.Store
	claims  *testClaims
	checked *document // validates responses, strictly
	n       int64

	admin, alice, aliceAgent, bob, expired string
	aliceNS, bobNS, template               string
}

func newClient(t testing.TB) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(apiConfig, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newPlatform(t testing.TB, change ...func(*Options)) *testPlatform {
	t.Helper()
	n := platforms.Add(1)
	p := &testPlatform{t: t, client: newClient(t), claims: newTestClaims(), n: n, template: fmt.Sprintf("tpl-%d", n)}
	system := fmt.Sprintf("system-%d", n)
	log := slog.New(slog.DiscardHandler)
	var err error
	if p.keys, err = access.NewStore(access.Options{Client: p.client, SystemNamespace: system, Logger: log}); err != nil {
		t.Fatal(err)
	}
	p.run(p.keys.Start)
	if p.admin, err = p.keys.Bootstrap(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	red, blue := fmt.Sprintf("red%d", n), fmt.Sprintf("blue%d", n)
	p.alice, p.aliceNS = p.issue(access.Spec{Team: red, User: "alice"})
	p.aliceAgent, _ = p.issue(access.Spec{Team: red, User: "alice", Agent: true})
	p.bob, p.bobNS = p.issue(access.Spec{Team: blue, User: "bob"})
	p.expired = p.lapsed(access.Spec{Team: red, User: "alice"})

	o := Options{
		Client: p.client, Claims: p.claims, Access: p.keys, ClusterID: "c-test", SystemNamespace: system,
		Version: "1.2.3", Logger: log, Catalogue: testCatalogue(t),
	}
	for _, f := range change {
		f(&o)
	}
	if p.h, err = New(o); err != nil {
		t.Fatal(err)
	}
	if err := p.h.ledger.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.checked, err = loadDocument(); err != nil {
		t.Fatal(err)
	}
	closeSchemas(p.checked.spec)
	p.createTemplate(p.template)
	return p
}

// run runs something that ends with its context until the test ends.
func (p *testPlatform) run(f func(context.Context) error) {
	p.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f(ctx) }()
	p.t.Cleanup(func() { stop(); <-done })
	if err := p.keys.WaitSynced(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *testPlatform) issue(s access.Spec) (key, namespace string) {
	p.t.Helper()
	if s.Role == "" {
		s.Role = access.RoleTenant
	}
	k, plain, err := p.keys.Issue(p.t.Context(), s)
	if err != nil {
		p.t.Fatal(err)
	}
	return plain, k.Namespace
}

// lapsed makes a key and lets its time pass.
func (p *testPlatform) lapsed(s access.Spec) string {
	p.t.Helper()
	s.Role, s.ExpiresAt = access.RoleTenant, time.Now().Add(time.Hour)
	k, plain, err := p.keys.Issue(p.t.Context(), s)
	if err != nil {
		p.t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "agentbox-apikey-" + k.ID, Namespace: fmt.Sprintf("system-%d", p.n)}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"expiresAt":"2020-01-01T00:00:00Z"},"data":{"expiresAt":"MjAyMC0wMS0wMVQwMDowMDowMFo="}}`))
	if err := p.client.Patch(p.t.Context(), secret, patch); err != nil {
		p.t.Fatal(err)
	}
	p.eventually("the key lapses", func() bool {
		now, _ := p.keys.Get(k.ID)
		return now.Expired(time.Now())
	})
	return plain
}

// eventually waits for a condition that another goroutine's event makes true.
func (p *testPlatform) eventually(what string, ok func() bool) {
	p.t.Helper()
	deadline := time.NewTimer(15 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			p.t.Fatalf("never happened: %s", what)
		}
	}
}

func testCatalogue(t testing.TB) *catalogue.Catalogue {
	t.Helper()
	c, err := catalogue.Parse([]byte(`
featureGates: {quota: true, instanceType: true, volumes: true}
instanceTypes:
  - name: small
    baseResources: {requests: {cpu: "1", memory: 2Gi}, limits: {cpu: "1", memory: 2Gi}}
    maxMultiplier: 4
    cost: 1
quotas:
  - {id: shared, name: everyone-shared, total: {small: 10}, poolType: shared}
  - {id: nobody, name: other-team, team: nobody, total: {small: 10}}
  - {id: spot, skipCheck: true, poolType: spot}
`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *testPlatform) createTemplate(name string, change ...func(*v1alpha1.SandboxTemplate)) {
	p.t.Helper()
	tpl := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	tpl.Spec.Version, tpl.Spec.Description, tpl.Spec.IdleImage = "1.0", "for tests", "idle:1"
	tpl.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sandbox", Image: "image:1"}}
	tpl.Spec.Runtimes = []v1alpha1.Runtime{{Name: "envd", Port: 49983}}
	for _, f := range change {
		f(tpl)
	}
	if err := p.client.Create(p.t.Context(), tpl); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := p.client.Delete(context.Background(), tpl); client.IgnoreNotFound(err) != nil {
			p.t.Error(err)
		}
	})
}

// answer is a response, taken apart.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any
	list   []any
}

func (a answer) code() string { s, _ := a.body["errorCode"].(string); return s }

// at reads a value by a dotted path; nil when it is not there.
func (a answer) at(path string) any { return valueAt(a.body, path) }

func valueAt(v any, path string) any {
	for _, part := range strings.Split(path, ".") {
		switch now := v.(type) {
		case map[string]any:
			v = now[part]
		case []any:
			var i int
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(now) {
				return nil
			}
			v = now[i]
		default:
			return nil
		}
	}
	return v
}

// request is one call; the zero key sends none.
type request struct {
	method, path, key string
	body              any
	header            map[string]string
}

// do makes a call and holds the answer to the document.
func (p *testPlatform) do(r request) answer {
	p.t.Helper()
	var body io.Reader
	if r.body != nil {
		raw, isText := r.body.(string)
		if !isText {
			b, err := json.Marshal(r.body)
			if err != nil {
				p.t.Fatal(err)
			}
			raw = string(b)
		}
		body = strings.NewReader(raw)
	}
	req := httptest.NewRequest(r.method, r.path, body)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("AGENTBOX-API-KEY", r.key)
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	rec := httptest.NewRecorder()
	p.h.ServeHTTP(rec, req)
	a := answer{status: rec.Code, header: rec.Header(), raw: rec.Body.Bytes()}
	if bytes.HasPrefix(bytes.TrimSpace(a.raw), []byte("[")) {
		_ = json.Unmarshal(a.raw, &a.list)
	} else {
		_ = json.Unmarshal(a.raw, &a.body)
	}
	p.checkAnswer(req, a)
	return a
}

// checkAnswer holds an answer to the document: its status, headers and body, with no key that the document lacks.
func (p *testPlatform) checkAnswer(req *http.Request, a answer) {
	p.t.Helper()
	if a.header.Get("X-Request-Id") == "" || a.header.Get("X-AgentBox-Server-Version") != "1.2.3" {
		p.t.Errorf("%s %s: X-Request-Id or X-AgentBox-Server-Version is missing", req.Method, req.URL)
	}
	if a.status >= 400 {
		if a.at("error") == nil && a.at("probes") == nil {
			p.t.Errorf("%s %s: %d without an error: %s", req.Method, req.URL, a.status, a.raw)
		}
		if a.at("error") != nil && a.at("requestId") != a.header.Get("X-Request-Id") {
			p.t.Errorf("%s %s: requestId of the body is not the header's: %s", req.Method, req.URL, a.raw)
		}
	}
	parts, err := segments(req.URL)
	if err != nil {
		return
	}
	f, isAPI := formOf(parts)
	if !isAPI || (f.cluster != "" && f.cluster != "default" && f.cluster != "c-test") {
		return
	}
	op, params, _ := newRouter(p.checked).match(req.Method, f.rest)
	if op == nil {
		return
	}
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, QueryParams: url.Values{}, Route: op.route, Options: filterOptions}
	err = openapi3filter.ValidateResponse(p.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.raw)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		_, inWords := problems(err)
		p.t.Errorf("%s %s: the answer does not fit the document: %s\n%s", req.Method, req.URL, strings.Join(inWords, "; "), a.raw)
	}
}

// closeSchemas makes every schema that names properties refuse others, so that an answer's keys are the document's.
func closeSchemas(spec *openapi3.T) {
	no := false
	for name, ref := range spec.Components.Schemas {
		s := ref.Value
		if len(s.Properties) > 0 && s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil && len(s.AllOf) == 0 {
			s.AdditionalProperties.Has = &no
		}
		_ = name
	}
}

// must makes a call that has to answer with a status.
func (p *testPlatform) must(status int, r request) answer {
	p.t.Helper()
	a := p.do(r)
	if a.status != status {
		p.t.Fatalf("%s %s: %d, want %d: %s", r.method, r.path, a.status, status, a.raw)
	}
	return a
}

func (p *testPlatform) get(key, path string) answer {
	p.t.Helper()
	return p.do(request{method: "GET", path: path, key: key})
}

// makeEnv makes an env with one pool of four Pods, and returns the pool's name.
func (p *testPlatform) makeEnv(key, name string) string {
	p.t.Helper()
	p.must(201, request{method: "POST", path: "/v1/envs", key: key, body: map[string]any{
		"name": name, "templateRef": map[string]any{"name": p.template},
	}})
	a := p.must(202, request{method: "POST", path: "/v1/envs/" + name + "/sandboxpools", key: key, body: map[string]any{
		"inlineResources": map[string]any{"requests": map[string]any{"cpu": "1", "memory": "2Gi"}}, "replicas": 4,
	}})
	return a.at("template.name").(string)
}

func (p *testPlatform) pullSecretOf(env string) *corev1.Secret {
	p.t.Helper()
	var s corev1.Secret
	err := p.client.Get(p.t.Context(), client.ObjectKey{Namespace: p.aliceNS, Name: pullSecretName(env)}, &s)
	if client.IgnoreNotFound(err) != nil {
		p.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &s
}

func visibleTo(team string) func(*v1alpha1.SandboxTemplate) {
	return func(t *v1alpha1.SandboxTemplate) {
		t.Spec.Visibility = &v1alpha1.Visibility{Rules: []v1alpha1.VisibilityRule{{Team: team}}}
	}
}
