// Package e2b serves E2B's control API, as the published SDKs speak it, over the platform's claims and environments.
//
// Where behaviour is E2B's, the fact is from its API document or was measured with its published packages. What is not
// served answers 501 in E2B's error shape and names what is missing.
package e2b

import (
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/podlog"
)

// EnvdVersion is what the platform's envd answers to: SDKs switch features on by it.
const EnvdVersion = "0.6.13"

// prefixes are the paths that the API is mounted under. A longer one stands before its beginning.
var prefixes = []string{"/agent-sandbox/api/e2b", "/e2b/v1", "/e2b"}

// Options are the collaborators of a Handler.
type Options struct {
	Claims claim.Service
	Access access.Authenticator
	// Envs reads SandboxEnv and SandboxPool objects, from a cache where there is one.
	Envs client.Reader
	// ClusterID is the id of this cluster, the first part of a template string.
	ClusterID string
	// Domain is the suffix of sandbox host names, with a port where clients need one. Empty: the client's own domain.
	Domain string
	// Logs reads what the main container of a sandbox wrote; nil answers 501.
	Logs   podlog.Reader
	Logger *slog.Logger
	// Registerer receives the metrics; nil registers none.
	Registerer prometheus.Registerer
}

// Handler serves the E2B API.
type Handler struct {
	claims  claim.Service
	keys    access.Authenticator
	envs    client.Reader
	cluster string
	domain  string
	logs    podlog.Reader
	log     *slog.Logger
	router  *router
	// unsupported counts the 501 answers, by route of Unsupported.
	unsupported *prometheus.CounterVec
}

// New returns a Handler for every mount of the API.
func New(o Options) *Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{
		claims:  o.Claims,
		keys:    o.Access,
		envs:    o.Envs,
		cluster: o.ClusterID,
		domain:  o.Domain,
		logs:    o.Logs,
		log:     o.Logger,
	}
	h.unsupported = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agentbox_e2b_unsupported_total",
		Help: "Requests for a part of the E2B API that is not implemented, by operation.",
	}, []string{"operation"})
	if o.Registerer != nil {
		o.Registerer.MustRegister(h.unsupported)
	}
	h.router = newRouter(h.routes())
	return h
}

// Match reports whether a request is for this API: by path prefix, or by the host api.<domain>.
func (h *Handler) Match(r *http.Request) bool {
	_, ok := h.relative(r)
	return ok
}

// relative returns the escaped path of a request below its mount.
func (h *Handler) relative(r *http.Request) (string, bool) {
	path := r.URL.EscapedPath()
	for _, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(path, prefix); ok && (rest == "" || rest[0] == '/') {
			return rest, true
		}
	}
	return path, h.domain != "" && strings.EqualFold(withoutPort(r.Host), "api."+withoutPort(h.domain))
}

func withoutPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}
