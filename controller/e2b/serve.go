package e2b

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"navix.sh/agentbox/controller/access"
)

// ServeHTTP answers one request to any mount of the API.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	allowBrowsers(w.Header())
	if r.Method == http.MethodOptions {
		writeEmpty(w, http.StatusNoContent)
		return
	}
	out, err := h.serve(r)
	status := out.Status
	if err != nil {
		failed := toAPIError(err)
		status = failed.Status
		if level, ok := failed.level(); ok {
			h.log.Log(r.Context(), level, "E2B request failed", "method", r.Method, "path", r.URL.Path, "status", status, "error", describe(failed))
		}
		writeError(w, failed)
	} else {
		write(w, out)
	}
	h.log.Debug("E2B request", "method", r.Method, "path", r.URL.Path, "status", status, "took", time.Since(begin))
}

func (h *Handler) serve(r *http.Request) (reply, error) {
	path, ok := h.relative(r)
	if !ok {
		return reply{}, &apiError{Status: http.StatusNotFound, Message: "this path is not part of the E2B API"}
	}
	if r.Method == http.MethodGet && path == "/health" {
		return reply{Status: http.StatusNoContent}, nil
	}
	caller, err := h.keys.Authenticate(r.Context(), presentedKey(r))
	if err != nil {
		return reply{}, err
	}
	serve, params, err := h.router.find(r.Method, path)
	if err != nil {
		return reply{}, err
	}
	return serve(r.Context(), &call{Request: r, caller: caller, params: params})
}

// presentedKey reads the API key: X-API-KEY as the SDKs send it, then the platform's own header, then a bearer token.
func presentedKey(r *http.Request) string {
	for _, name := range []string{"X-Api-Key", "Agentbox-Api-Key"} {
		if v := strings.TrimSpace(r.Header.Get(name)); v != "" {
			return v
		}
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// allowBrowsers lets the SDK run in a page of any origin: keys travel in headers, never in cookies.
func allowBrowsers(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "*, Authorization")
	h.Set("Access-Control-Expose-Headers", "X-Next-Token, X-Total-Running, Retry-After")
	h.Set("Access-Control-Max-Age", "7200")
}

func write(w http.ResponseWriter, out reply) {
	for name, values := range out.Header {
		w.Header()[name] = values
	}
	if out.Body == nil {
		writeEmpty(w, out.Status)
		return
	}
	body, err := json.Marshal(out.Body)
	if err != nil {
		writeError(w, toAPIError(fmt.Errorf("encode answer: %w", err)))
		return
	}
	writeJSON(w, out.Status, body)
}

// writeEmpty says that there is no body: an SDK that finds a chunked empty one fails to parse it.
func writeEmpty(w http.ResponseWriter, status int) {
	if status != http.StatusNoContent {
		w.Header().Set("Content-Length", "0")
	}
	w.WriteHeader(status)
}

func writeError(w http.ResponseWriter, e *apiError) {
	if after := e.retryAfter(); after != "" {
		w.Header().Set("Retry-After", after)
	}
	if e.Allow != "" {
		w.Header().Set("Allow", e.Allow)
	}
	body, err := json.Marshal(errorBody{Code: e.Status, Message: e.Message, ErrorCode: e.ErrorCode})
	if err != nil {
		body = []byte(`{"code":500,"message":"the error could not be encoded"}`)
	}
	writeJSON(w, e.Status, body)
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func describe(e *apiError) string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// authorize asks the platform's one authorisation function about an object of this surface.
func (c *call) authorize(v access.Verb, o access.Object) error {
	return access.Authorize(c.caller, v, o)
}
