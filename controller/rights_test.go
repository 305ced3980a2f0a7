package controller

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

// rights are what deploy/install.yaml allows the controller, held against what it asks for. The embedded Kubernetes API
// has no RBAC of its own: its client is stopped here, as a cluster would stop it.
type rights struct {
	mu      sync.Mutex
	unused  map[right]bool // every right; false once it was used
	refused []string
}

// right is one verb on one resource; in every namespace where namespace is empty.
type right struct{ verb, group, resource, namespace, name string }

func (r right) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.verb, strings.Trim(r.group+"/"+r.resource, "/"), r.namespace, r.name))
}

func readRights(t *testing.T, file string) *rights {
	t.Helper()
	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &rights{unused: map[right]bool{}}
	for document := range bytes.SplitSeq(manifest, []byte("\n---\n")) {
		var role rbacv1.Role // a ClusterRole reads as one without a namespace
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			names := rule.ResourceNames
			if names == nil {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						for _, name := range names {
							r.unused[right{verb, group, resource, role.Namespace, name}] = true
						}
					}
				}
			}
		}
	}
	return r
}

// use reports whether a request is allowed.
func (r *rights) use(i *request.RequestInfo) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := i.Resource
	if i.Subresource != "" {
		resource += "/" + i.Subresource
	}
	for _, namespace := range []string{i.Namespace, ""} {
		for _, name := range []string{i.Name, ""} {
			k := right{i.Verb, i.APIGroup, resource, namespace, name}
			if _, ok := r.unused[k]; ok {
				r.unused[k] = false
				return true
			}
		}
	}
	r.refused = append(r.refused, right{i.Verb, i.APIGroup, resource, i.Namespace, i.Name}.String())
	return false
}

// neverUsed names the rights that nothing asked for.
func (r *rights) neverUsed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for k, unused := range r.unused {
		if unused {
			out = append(out, k.String())
		}
	}
	slices.Sort(out)
	return out
}

func (r *rights) wrap(next http.RoundTripper) http.RoundTripper {
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		info, err := resolver.NewRequestInfo(req)
		if err != nil {
			return nil, err
		}
		// Which types there are, every account may ask.
		if !info.IsResourceRequest || r.use(info) {
			return next.RoundTrip(req)
		}
		const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"forbidden by deploy/install.yaml"}`
		return &http.Response{
			StatusCode: http.StatusForbidden, Status: "403 Forbidden", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), Request: req,
		}, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
