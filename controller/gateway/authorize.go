package gateway

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

// pass says how an authorised request is shown to the sandbox.
type pass struct {
	// AccessToken is sent to envd in place of the caller's API key.
	AccessToken string
	// Proven is true when nothing is left for envd to check.
	Proven bool
}

// Headers of the data plane that carry a proof.
const (
	headerAccessToken  = "X-Access-Token"
	headerTrafficToken = "E2b-Traffic-Access-Token"
)

// keyHeaders may carry a platform API key. They are looked at in this order.
var keyHeaders = []string{"X-Api-Key", "Agentbox-Api-Key", "Authorization"}

// platformKey is what an API key looks like. Whatever matches is never shown to a sandbox.
var platformKey = regexp.MustCompile(`^(?i:bearer\s+)?((?:agbx|e2b)_[0-9a-f]{40,})$`)

// authorize decides whether a request may reach a port of a sandbox. What proves the right:
//
//   - any port: the API key of somebody whom access.Authorize allows to use the sandbox;
//   - envd's port: else envd's own proof, the sandbox's access token or a signature made with it, which envd checks
//     itself; /health needs none. Where a sandbox has no token, nothing but the API key will do;
//   - other ports: else nothing, as E2B has it, because the id cannot be guessed; or the traffic token, where the
//     sandbox was created with private traffic.
func (g *Gateway) authorize(r *http.Request, t Target, route claim.Route) (pass, *Refusal) {
	if t.Port == EnvdPort {
		return g.authorizeEnvd(r, t, route)
	}
	if !route.PrivateTraffic {
		return pass{Proven: true}, nil
	}
	token := r.Header.Get(headerTrafficToken)
	if token != "" && route.TrafficToken != "" && equal(token, route.TrafficToken) {
		return pass{Proven: true}, nil
	}
	if g.ownerKey(r, t, route) {
		return pass{Proven: true}, nil
	}
	if token == "" {
		return pass{}, trafficToken(t.ID, "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing")
	}
	return pass{}, trafficToken(t.ID, "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid")
}

func (g *Gateway) authorizeEnvd(r *http.Request, t Target, route claim.Route) (pass, *Refusal) {
	if isHealth(r, t) {
		return pass{}, nil
	}
	token := r.Header.Get(headerAccessToken)
	if route.AccessToken != "" && (token != "" || isSigned(t)) {
		return pass{Proven: equal(token, route.AccessToken)}, nil
	}
	if g.ownerKey(r, t, route) {
		return pass{AccessToken: route.AccessToken, Proven: true}, nil
	}
	if route.AccessToken == "" && r.Method != http.MethodOptions {
		return pass{}, unproven(t.ID)
	}
	return pass{}, nil // envd refuses in its own words
}

// ownerKey reports whether the request carries an API key that may use the sandbox. A key that may not is as good as
// none, so that no answer tells a foreign sandbox from one's own without a token.
func (g *Gateway) ownerKey(r *http.Request, t Target, route claim.Route) bool {
	if g.keys == nil {
		return false
	}
	for _, name := range keyHeaders {
		key, ok := keyIn(r.Header.Get(name))
		if !ok {
			continue
		}
		caller, err := g.keys.Authenticate(r.Context(), key)
		if err != nil {
			continue
		}
		object := access.Object{Kind: access.KindSandbox, Namespace: route.Owner.Namespace, Name: t.ID,
			Team: route.Owner.Team, User: route.Owner.User}
		if access.Authorize(caller, access.VerbUse, object) == nil {
			return true
		}
	}
	return false
}

func keyIn(value string) (string, bool) {
	m := platformKey.FindStringSubmatch(strings.TrimSpace(value))
	if m == nil {
		return "", false
	}
	return m[1], true
}

// withoutSecrets removes what proves something to the platform and is no business of the code in a sandbox. Headers of
// the same name with other values are the application's own.
func withoutSecrets(h http.Header, t Target, route claim.Route) {
	for _, name := range keyHeaders {
		if _, ok := keyIn(h.Get(name)); ok {
			h.Del(name)
		}
	}
	h.Del(headerTrafficToken)
	if t.Port != EnvdPort && t.Port != codeInterpreterPort && equal(h.Get(headerAccessToken), route.AccessToken) {
		h.Del(headerAccessToken)
	}
}

// codeInterpreterPort receives the access token too: its server reads the sandbox's environment from envd with it.
const codeInterpreterPort = 49999

// internalPaths are envd's routes for the platform alone.
var internalPaths = map[string]bool{
	"/init": true, "/state": true, "/freeze": true, "/unfreeze": true, "/collapse": true,
	"/fsfreeze": true, "/fsthaw": true, "/upgrade": true,
}

func internalPath(t Target) bool { return t.Port == EnvdPort && internalPaths[t.path()] }

func isHealth(r *http.Request, t Target) bool {
	return t.Port == EnvdPort && t.RawPath == "/health" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

func isSigned(t Target) bool {
	query, err := url.ParseQuery(t.RawQuery)
	return err == nil && t.path() == "/files" && query.Get("signature") != ""
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
