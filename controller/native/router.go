package native

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// segments is a path split at its slashes, each part unescaped on its own, so that an escaped slash stays part of a
// name.
func segments(u *url.URL) ([]string, error) {
	parts := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i, p := range parts {
		v, err := url.PathUnescape(p)
		if err != nil {
			return nil, fmt.Errorf("the path holds a broken escape: %w", err)
		}
		parts[i] = v
	}
	return parts, nil
}

// router finds the operation of a path below the API's base.
type router struct {
	operations []*operation
	templates  map[string][]string
}

func newRouter(d *document) *router {
	r := &router{templates: map[string][]string{}}
	for _, id := range sortedNames(d.operations) {
		o := d.operations[id]
		r.operations = append(r.operations, o)
		r.templates[id] = strings.Split(strings.TrimPrefix(o.path, "/"), "/")
	}
	return r
}

// match returns the operation of a method and path with the values of its placeholders. Literal segments win over
// placeholders. Without an operation, allowed lists the methods that the path does have.
func (r *router) match(method string, parts []string) (op *operation, params map[string]string, allowed []string) {
	if method == http.MethodHead {
		method = http.MethodGet // net/http leaves the body out
	}
	best := -1
	for _, o := range r.operations {
		values, literals, ok := matchTemplate(r.templates[o.id], parts)
		if !ok {
			continue
		}
		if o.method != method {
			if !slices.Contains(allowed, o.method) {
				allowed = append(allowed, o.method)
			}
			continue
		}
		if literals > best {
			op, params, best = o, values, literals
		}
	}
	return op, params, allowed
}

func matchTemplate(template, parts []string) (values map[string]string, literals int, ok bool) {
	if len(template) != len(parts) {
		return nil, 0, false
	}
	values = map[string]string{}
	for i, t := range template {
		if name, isParam := strings.CutPrefix(t, "{"); isParam {
			if parts[i] == "" {
				return nil, 0, false
			}
			values[strings.TrimSuffix(name, "}")] = parts[i]
			continue
		}
		if t != parts[i] {
			return nil, 0, false
		}
		literals++
	}
	return values, literals, true
}

// form is how a request addresses the API.
type form struct {
	// base is the path that the operations follow, such as /v1.
	base string
	// cluster is the id in the console form, else empty.
	cluster string
	rest    []string
}

// formOf takes a path apart. The bool is false for paths that are not the API's.
func formOf(parts []string) (form, bool) {
	switch {
	case len(parts) >= 1 && parts[0] == "v1":
		return form{base: "/v1", rest: parts[1:]}, true
	case len(parts) == 2 && parts[0] == "api" && parts[1] == "clusters":
		return form{base: "/api", rest: parts[1:]}, true
	case len(parts) >= 4 && parts[0] == "api" && parts[1] == "clusters" && parts[3] == "v1":
		base := "/api/clusters/" + url.PathEscape(parts[2]) + "/v1"
		return form{base: base, cluster: parts[2], rest: parts[4:]}, true
	}
	return form{}, false
}

func noRoute(r *http.Request, allowed []string) *apiError {
	if len(allowed) > 0 {
		e := refuse(http.StatusMethodNotAllowed, codeMethod, "use "+strings.Join(allowed, " or "), "%s does not take %s", r.URL.Path, r.Method)
		e.allow = strings.Join(allowed, ", ")
		return e
	}
	return refuse(http.StatusNotFound, codeNotFound, "/openapi.yaml lists what is served", "nothing is served at %s", r.URL.Path)
}
