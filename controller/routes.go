package controller

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"navix.sh/agentbox/controller/e2b"
)

// routes is the one port: the gateway takes what is addressed to a sandbox, the rest goes by path.
func (p *platform) routes(nativeAPI http.Handler, e2bAPI *e2b.Handler) http.Handler {
	metrics := promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.gateway.Match(r) {
			p.gateway.ServeHTTP(w, r)
			return
		}
		if e2bAPI.Match(r) {
			e2bAPI.ServeHTTP(w, r)
			return
		}
		switch r.URL.Path {
		case "/healthz":
			w.WriteHeader(http.StatusNoContent)
		case "/readyz":
			if !p.ready.Load() {
				http.Error(w, "not ready: the controller is starting or stopping; try again shortly", http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		case "/metrics":
			metrics.ServeHTTP(w, r)
		default:
			nativeAPI.ServeHTTP(w, r)
		}
	})
}
