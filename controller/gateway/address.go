package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// dataPrefix begins the path form, `<dataPrefix>/sandboxes/<id>/<port>/rest`. A client that addresses by headers may
// also have it as the path of its base address.
const dataPrefix = "/agent-sandbox/api/data"

// Target is the sandbox and port that a request is for, and what of its request target goes there.
type Target struct {
	ID   string
	Port int
	// RawPath is the escaped path as it arrived, without the path form's prefix; it begins with a slash.
	RawPath string
	// RawQuery is the query as it arrived, without the question mark.
	RawQuery string
	// ForceQuery is true for a target that ends in a bare question mark.
	ForceQuery bool
}

// path is the decoded and cleaned path: what a server behind could take RawPath for.
func (t Target) path() string {
	decoded, err := url.PathUnescape(t.RawPath)
	if err != nil {
		decoded = t.RawPath
	}
	return path.Clean("/" + decoded)
}

// errNotAddressed means that a request is for no sandbox at all.
var errNotAddressed = errors.New("the request is not addressed to a sandbox")

// resolve reads the address of a request. First match: host name, path, headers.
func (g *Gateway) resolve(r *http.Request) (Target, error) {
	rawPath, rawQuery, force := rawTarget(r)
	host := hostName(r.Host)

	if port, id, ok := g.splitHost(host); ok {
		return target(id, port, rawPath, rawQuery, force)
	}
	if rest, ok := strings.CutPrefix(rawPath, dataPrefix+"/sandboxes/"); ok {
		id, rest, _ := strings.Cut(rest, "/")
		port, rest, _ := strings.Cut(rest, "/")
		return target(id, port, "/"+rest, rawQuery, force)
	}
	id, port := header(r, "E2b-Sandbox-Id", "X-Sandbox-Id"), header(r, "E2b-Sandbox-Port", "X-Sandbox-Port")
	switch {
	case id == "" && port == "":
		return Target{}, g.unaddressed(host)
	case id == "":
		return Target{}, missingHeader("E2b-Sandbox-Id")
	case port == "":
		return Target{}, missingHeader("E2b-Sandbox-Port")
	}
	if rest, ok := strings.CutPrefix(rawPath, dataPrefix); ok && (rest == "" || rest[0] == '/') {
		rawPath = "/" + strings.TrimPrefix(rest, "/")
	}
	return target(id, port, rawPath, rawQuery, force)
}

// splitHost splits `<port>-<id>[-anything].<domain>`. The last part was the client id of old SDKs.
func (g *Gateway) splitHost(host string) (port, id string, ok bool) {
	label, rest, dotted := strings.Cut(host, ".")
	if !dotted || (g.domain != "" && rest != g.domain) {
		return "", "", false
	}
	port, id, dashed := strings.Cut(label, "-")
	if !dashed || !isDigits(port) {
		return "", "", false
	}
	return port, id, true
}

// unaddressed is the error of a request that names no sandbox in any way. Host names below the domain are sandboxes',
// but for the E2B API's and the platform's own.
func (g *Gateway) unaddressed(host string) error {
	label, below := strings.CutSuffix(host, "."+g.domain)
	switch {
	case g.domain == "" || !below || label == "api" || host == g.host:
		return errNotAddressed
	case label == "sandbox":
		return missingHeader("E2b-Sandbox-Id")
	case strings.Contains(label, "-") && !strings.Contains(label, "."):
		return errors.New("Invalid sandbox port")
	}
	return errors.New("Invalid host")
}

func target(id, port, rawPath, rawQuery string, force bool) (Target, error) {
	id, _, _ = strings.Cut(id, "-")
	if !isID(id) {
		return Target{}, errors.New("Invalid sandbox ID")
	}
	n, err := strconv.Atoi(port)
	if err != nil || !isDigits(port) || n < 1 || n > 65535 {
		return Target{}, errors.New("Invalid sandbox port")
	}
	return Target{ID: id, Port: n, RawPath: rawPath, RawQuery: rawQuery, ForceQuery: force}, nil
}

// rawTarget splits the request target as it arrived, so that nothing is normalised on the way.
func rawTarget(r *http.Request) (rawPath, rawQuery string, force bool) {
	raw := r.RequestURI
	if !strings.HasPrefix(raw, "/") { // absolute form, `*`, or a request that was built in process
		return "/" + strings.TrimPrefix(r.URL.EscapedPath(), "/"), r.URL.RawQuery, r.URL.ForceQuery
	}
	rawPath, rawQuery, found := strings.Cut(raw, "?")
	return rawPath, rawQuery, found && rawQuery == ""
}

func header(r *http.Request, names ...string) string {
	for _, name := range names {
		if v := strings.TrimSpace(r.Header.Get(name)); v != "" {
			return v
		}
	}
	return ""
}

func missingHeader(name string) error {
	return fmt.Errorf("missing header %s: a request that addresses a sandbox by headers carries E2b-Sandbox-Id and E2b-Sandbox-Port", name)
}

func hostName(hostPort string) string {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func normalizeDomain(domain string) string { return strings.TrimPrefix(hostName(domain), ".") }

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && len(s) <= 5
}

func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 63
}
