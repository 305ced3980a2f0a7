package gateway

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

// Refusal is an answer of the gateway itself. The SDKs read its fields and its status (facts: E2B's client proxy).
type Refusal struct {
	SandboxID string `json:"sandboxId,omitempty"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Path      string `json:"path,omitempty"`
	Code      int    `json:"code"`
}

func badAddress(err error) *Refusal {
	return &Refusal{Message: err.Error(), Code: http.StatusBadRequest}
}

func sandboxNotFound(id string) *Refusal {
	return &Refusal{SandboxID: id, Message: "The sandbox was not found", Code: http.StatusBadGateway}
}

func portClosed(t Target) *Refusal {
	return &Refusal{SandboxID: t.ID, Message: "The sandbox is running but port is not open", Port: t.Port, Code: http.StatusBadGateway}
}

func brokenAnswer(t Target) *Refusal {
	return &Refusal{SandboxID: t.ID, Message: "The sandbox is running but the connection to the port broke before it answered",
		Port: t.Port, Code: http.StatusBadGateway}
}

func reservedPath(p string) *Refusal {
	return &Refusal{Message: "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL",
		Path: p, Code: http.StatusNotFound}
}

func trafficToken(id, problem string) *Refusal {
	return &Refusal{SandboxID: id, Code: http.StatusForbidden, Message: problem}
}

func unproven(id string) *Refusal {
	return &Refusal{SandboxID: id, Code: http.StatusUnauthorized,
		Message: "The sandbox has no access token of its own: send the API key of its owner in X-API-KEY"}
}

// refuse writes a refusal: JSON, or a page for a person who navigates with a browser. Scripts of any page may read it,
// as they may read what envd and the E2B API answer; a browser that asks first is told so, and gets the refusal for the
// request itself.
func refuse(w http.ResponseWriter, r *http.Request, f *Refusal) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	if isPreflight(r) {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "*, Authorization")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if f.Code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `ApiKey realm="agentbox"`)
	}
	if isNavigation(r) {
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(f.Code)
		_ = page.Execute(w, f)
		return
	}
	body, err := json.Marshal(f)
	if err != nil {
		http.Error(w, f.Message, f.Code)
		return
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(f.Code)
	_, _ = w.Write(body)
}

// isPreflight reports whether a browser asks what a script may send. It sends none of the script's own headers with it.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// willAddress reports whether a preflight is for a request that addresses a sandbox by headers.
func willAddress(r *http.Request) bool {
	names := strings.ToLower(strings.Join(r.Header.Values("Access-Control-Request-Headers"), ","))
	return isPreflight(r) && strings.Contains(names, "e2b-sandbox-id")
}

// isNavigation reports whether a person's browser asks for a page, and not a script of it or a program.
func isNavigation(r *http.Request) bool {
	if !strings.Contains(r.UserAgent(), "Mozilla/") || r.Header.Get("X-Requested-With") != "" {
		return false
	}
	if strings.Contains(r.Header.Get("Accept"), "json") {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Mode") {
	case "cors", "no-cors", "same-origin", "websocket":
		return false
	}
	return true
}

var page = template.Must(template.New("refusal").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Code}} {{.Message}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:20vh auto;padding:0 1rem}code{background:#8882;padding:.1em .3em}</style>
</head><body><h1>{{.Message}}</h1>
<p>{{if .SandboxID}}Sandbox <code>{{.SandboxID}}</code>{{if .Port}}, port <code>{{.Port}}</code>{{end}}. {{end}}Status {{.Code}}.</p>
</body></html>
`))
