package controller

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"navix.sh/agentbox/controller/e2b"
)

// routes is the one port: the gateway takes what is addressed to a sandbox, the rest goes by path.
func (p *platform) routes(nativeAPI http.Handler, e2bAPI *e2b.Handler) http.Handler {
	metrics := promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		toSandbox := p.gateway.Match(r)
		switch {
		case toSandbox:
		case r.URL.Path == "/healthz":
			w.WriteHeader(http.StatusNoContent)
			return
		case r.URL.Path == "/metrics":
			metrics.ServeHTTP(w, r)
			return
		case r.URL.Path == "/readyz" && p.ready.Load():
			w.WriteHeader(http.StatusNoContent)
			return
		}
		switch {
		case !p.ready.Load():
			notReady(w)
		case toSandbox:
			p.gateway.ServeHTTP(w, r)
		case e2bAPI.Match(r):
			e2bAPI.ServeHTTP(w, r)
		default:
			nativeAPI.ServeHTTP(w, r)
		}
	})
}

// notReady answers while the platform does not know yet which sandboxes there are: none may be called missing. The body
// is an error in the words of every surface.
func notReady(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", "1")
	h.Set("Access-Control-Allow-Origin", "*") // so that a script in a page reads it too
	w.WriteHeader(http.StatusServiceUnavailable)
	const message = "not ready: the controller is starting or stopping"
	_ = json.NewEncoder(w).Encode(map[string]any{
		"code": http.StatusServiceUnavailable, "message": message,
		"error": message, "errorCode": "UNAVAILABLE", "hint": []string{"try again shortly"},
	})
}
