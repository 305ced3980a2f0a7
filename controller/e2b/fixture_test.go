package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/claim"
)

const (
	aliceKey = "agbx_00000000000000000000000000000000000000000000000000000000000000aa"
	bobKey   = "e2b_00000000000000000000000000000000000000000000000000000000000000bb"
	agentKey = "agbx_00000000000000000000000000000000000000000000000000000000000000cc"
)

var callers = map[string]access.Caller{
	aliceKey: {KeyID: "a", Role: access.RoleTenant, Namespace: "t-red-alice", Team: "red", User: "alice"},
	bobKey:   {KeyID: "b", Role: access.RoleTenant, Namespace: "t-blue-bob", Team: "blue", User: "bob"},
	agentKey: {KeyID: "c", Role: access.RoleTenant, Namespace: "t-red-alice", Team: "red", User: "alice", Agent: true},
}

type keyring struct{}

func (keyring) Authenticate(_ context.Context, key string) (access.Caller, error) {
	if c, ok := callers[key]; ok {
		return c, nil
	}
	return access.Caller{}, access.ErrUnauthenticated
}

// claims keeps sandboxes in memory and fails on demand; the real service is tested with the whole platform.
type claims struct {
	mu       sync.Mutex
	next     int
	now      time.Time
	live     map[string]*claim.Sandbox
	requests []claim.Request
	fail     error
	dial     func(ctx context.Context, port int) (net.Conn, error)
}

func (c *claims) Create(_ context.Context, r claim.Request) (claim.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	if c.fail != nil {
		return claim.Sandbox{}, c.fail
	}
	c.next++
	c.now = c.now.Add(time.Second)
	sb := claim.Sandbox{
		ID: fmt.Sprintf("i%03d", c.next), Owner: r.Owner, Env: r.Env, Pool: r.Pool, Status: claim.StatusRunning, Armed: true,
		ClaimedAt: c.now, StartedAt: c.now, Metadata: maps.Clone(r.Metadata), CPU: "1500m", Memory: "512Mi", AccessToken: "token",
	}
	if r.PrivateTraffic {
		sb.TrafficToken = "traffic"
	}
	if sb.Pool == "" {
		sb.Pool = r.Env + "-pool"
	}
	if r.Timeout > 0 {
		sb.EndAt = c.now.Add(r.Timeout)
	}
	c.live[sb.ID] = &sb
	return sb, nil
}

func (c *claims) find(id string) (*claim.Sandbox, error) {
	if c.fail != nil {
		return nil, c.fail
	}
	if sb, ok := c.live[id]; ok {
		return sb, nil
	}
	return nil, &claim.Error{Code: claim.CodeNotFound, Message: "no sandbox " + id}
}

func (c *claims) Get(_ context.Context, id string, _ bool) (claim.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sb, err := c.find(id)
	if err != nil {
		return claim.Sandbox{}, err
	}
	return *sb, nil
}

func (c *claims) List(_ context.Context, f claim.Filter) ([]claim.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return nil, c.fail
	}
	var out []claim.Sandbox
	for _, id := range slices.Sorted(maps.Keys(c.live)) {
		sb := c.live[id]
		matches := sb.Owner == f.Owner && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, sb.Status))
		for k, v := range f.Metadata {
			got, ok := sb.Metadata[k]
			matches = matches && ok && got == v
		}
		if matches {
			out = append(out, *sb)
		}
	}
	return out, nil
}

func (c *claims) Kill(_ context.Context, id string, _ claim.Reason) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.find(id); err != nil {
		return err
	}
	delete(c.live, id)
	return nil
}

func (c *claims) SetTimeout(_ context.Context, id string, d time.Duration) (claim.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sb, err := c.find(id)
	if err != nil {
		return claim.Sandbox{}, err
	}
	sb.EndAt = c.now.Add(d)
	return *sb, nil
}

func (c *claims) Extend(_ context.Context, id string, d time.Duration) (claim.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sb, err := c.find(id)
	if err != nil {
		return claim.Sandbox{}, err
	}
	if end := c.now.Add(d); !sb.EndAt.IsZero() && end.After(sb.EndAt) {
		sb.EndAt = end
	}
	return *sb, nil
}

func (c *claims) Touch(string) {}

func (c *claims) Route(id string) (claim.Route, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sb, ok := c.live[id]
	if !ok || c.dial == nil {
		return claim.Route{}, false
	}
	return claim.Route{Owner: sb.Owner, Dial: c.dial, Done: make(chan struct{}), AccessToken: sb.AccessToken}, true
}

type fixture struct {
	t      *testing.T
	claims *claims
	server *httptest.Server
	spec   routers.Router
	// base is the mount that requests go to.
	base string
}

func env(namespace, name string, change func(*v1alpha1.SandboxEnv)) *v1alpha1.SandboxEnv {
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "5f9b8a66-0000-4000-8000-000000000001",
		CreationTimestamp: metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
	if change != nil {
		change(e)
	}
	return e
}

func newFixture(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{
		env("t-red-alice", "default", func(e *v1alpha1.SandboxEnv) {
			e.Annotations = map[string]string{AnnotationAliases: "base, Bad Name,code-interpreter-v1"}
			e.Status.Clusters = []v1alpha1.ClusterStatus{{ClusterID: "local", ObservedMembers: []v1alpha1.ObservedMember{{
				Name: "default-2c4gi", EffectiveResources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi")}}}}}}
		}),
		env("t-red-alice", "patient", func(e *v1alpha1.SandboxEnv) {
			e.Spec.Overrides = &v1alpha1.EnvOverrides{DefaultIdleTimeout: &metav1.Duration{Duration: time.Hour}}
		}),
		env("t-red-alice", "colleagues", func(e *v1alpha1.SandboxEnv) {
			e.Labels = map[string]string{v1alpha1.LabelTeam: "red", v1alpha1.LabelUser: "carol"}
		}),
		env("t-blue-bob", "blue", nil),
		&v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "t-red-alice", Name: "default-2c4gi"}},
	}
	c := &claims{live: map[string]*claim.Sandbox{}, now: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
	options := Options{Claims: c, Access: keyring{}, ClusterID: "local",
		Envs: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	if change != nil {
		change(&options)
	}
	server := httptest.NewServer(New(options))
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return &fixture{t: t, claims: c, server: server, spec: document(t), base: "/e2b"}
}

var loadDocument = sync.OnceValues(func() (*openapi3.T, error) {
	data, err := os.ReadFile("../../openapi/e2b.yaml")
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	doc.Servers = nil // routes are matched below their mount
	return doc, nil
})

func document(t *testing.T) routers.Router {
	t.Helper()
	doc, err := loadDocument()
	if err != nil {
		t.Fatal(err)
	}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return router
}

// answer is what came back.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a answer) decode(t *testing.T, out any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, out); err != nil {
		t.Fatalf("%d %s: %v", a.Status, a.Body, err)
	}
}

// call sends a request as the SDKs do, with a chunked body, and holds the answer to the document and to E2B's rules.
func (f *fixture) call(key, method, path, body string) answer {
	f.t.Helper()
	var in io.Reader
	if body != "" {
		in = io.MultiReader(strings.NewReader(body)) // of unknown length: chunked
	}
	r, err := http.NewRequest(method, f.server.URL+f.base+path, in)
	if err != nil {
		f.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("X-API-KEY", key)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return f.send(r)
}

func (f *fixture) send(r *http.Request) answer {
	f.t.Helper()
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	a := answer{Status: response.StatusCode, Header: response.Header, Body: body}
	f.check(r, response, a)
	return a
}

// check holds an answer to what every answer must be.
func (f *fixture) check(r *http.Request, response *http.Response, a answer) {
	f.t.Helper()
	at := fmt.Sprintf("%s %s: %d %s", r.Method, r.URL.RequestURI(), a.Status, a.Body)
	if a.Status >= 400 {
		var e errorBody
		if err := json.Unmarshal(a.Body, &e); err != nil || e.Code != a.Status || e.Message == "" {
			f.t.Errorf("%s: not E2B's error body: %v", at, err)
		}
	}
	if len(a.Body) == 0 && a.Status != http.StatusNoContent && response.ContentLength != 0 {
		f.t.Errorf("%s: an empty answer without Content-Length: 0", at)
	}
	if a.Status == http.StatusTooManyRequests && a.Header.Get("Retry-After") == "" {
		f.t.Errorf("%s: no Retry-After", at)
	}
	plain, err := http.NewRequest(r.Method, "http://x"+strings.TrimPrefix(r.URL.EscapedPath(), f.base), nil)
	if err != nil {
		return
	}
	route, params, err := f.spec.FindRoute(plain)
	if err != nil {
		if a.Status != http.StatusNotImplemented && a.Status < 400 {
			f.t.Errorf("%s: the document has no such route: %v", at, err)
		}
		return
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: plain, PathParams: params, Route: route},
		Status:                 a.Status, Header: a.Header, Body: io.NopCloser(strings.NewReader(string(a.Body))),
	})
	if err != nil {
		f.t.Errorf("%s: not what the document says: %v", at, err)
	}
}

func (f *fixture) create(key, body string) sandboxBody {
	f.t.Helper()
	a := f.call(key, "POST", "/v2/sandboxes", body)
	if a.Status != http.StatusCreated {
		f.t.Fatalf("create %s: %d %s", body, a.Status, a.Body)
	}
	var sb sandboxBody
	a.decode(f.t, &sb)
	return sb
}
