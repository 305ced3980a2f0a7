package e2b

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"navix.sh/agentbox/controller/access"
)

// call is one authenticated request: who asks, and the path parameters.
type call struct {
	*http.Request
	caller access.Caller
	params map[string]string
}

// reply is the answer of a handler. A nil Body is an empty answer.
type reply struct {
	Status int
	Body   any
	Header http.Header
}

type handlerFunc func(ctx context.Context, c *call) (reply, error)

// route serves one method and path. A path segment in braces is a parameter; with dots, as the last one, it is what
// remains of the path.
type route struct {
	Method string
	Path   string
	Serve  handlerFunc
}

// router matches escaped path segments, so that a segment with an encoded slash stays one. It never redirects: the
// SDKs do not follow.
type router struct {
	routes []compiledRoute
}

type compiledRoute struct {
	route
	segments []string
}

func newRouter(routes []route) *router {
	r := &router{}
	for _, rt := range routes {
		r.routes = append(r.routes, compiledRoute{rt, strings.Split(strings.TrimPrefix(rt.Path, "/"), "/")})
	}
	return r
}

// find returns the handler for a method and an escaped path. Without one it returns the error to answer.
func (rt *router) find(method, path string) (handlerFunc, map[string]string, error) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return nil, nil, badRequest("path segment %q is not percent-encoded properly", s)
		}
		segments[i] = decoded
	}
	var best *compiledRoute
	var allowed []string
	for i := range rt.routes {
		r := &rt.routes[i]
		if !matches(r.segments, segments) {
			continue
		}
		if r.Method != method {
			allowed = append(allowed, r.Method)
			continue
		}
		if best == nil || moreLiteral(r.segments, best.segments) {
			best = r
		}
	}
	if best == nil {
		if len(allowed) > 0 {
			slices.Sort(allowed)
			allowed = slices.Compact(allowed)
			return nil, nil, &apiError{Status: http.StatusMethodNotAllowed, Allow: strings.Join(allowed, ", "),
				Message: method + " is not a method of " + path + ": use " + strings.Join(allowed, " or ")}
		}
		return nil, nil, &apiError{Status: http.StatusNotFound,
			Message: "there is no route " + method + " " + path + " in the E2B API; docs/compatibility.md lists what is served"}
	}
	params := map[string]string{}
	for i, s := range best.segments {
		if name, ok := remainder(s); ok {
			params[name] = strings.Join(segments[i:], "/")
		} else if name, ok := parameter(s); ok {
			params[name] = segments[i]
		}
	}
	return best.Serve, params, nil
}

func matches(pattern, segments []string) bool {
	if last := len(pattern) - 1; len(segments) > last {
		if _, ok := remainder(pattern[last]); ok {
			return matches(pattern[:last], segments[:last]) && segments[last] != ""
		}
	}
	if len(pattern) != len(segments) {
		return false
	}
	for i, p := range pattern {
		if _, ok := parameter(p); ok {
			if segments[i] == "" {
				return false
			}
		} else if p != segments[i] {
			return false
		}
	}
	return true
}

// moreLiteral prefers /sandboxes/metrics to /sandboxes/{sandboxID}.
func moreLiteral(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		_, pa := parameter(a[i])
		_, pb := parameter(b[i])
		if pa != pb {
			return pb
		}
	}
	return false
}

func remainder(segment string) (string, bool) {
	return strings.CutSuffix(strings.TrimPrefix(segment, "{"), "...}")
}

func parameter(segment string) (string, bool) {
	if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}") {
		return segment[1 : len(segment)-1], true
	}
	return "", false
}
