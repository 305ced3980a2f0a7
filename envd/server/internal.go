package server

import (
	"encoding/json"
	"net/http"

	"navix.sh/agentbox/envd/access"
	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/state"
)

// internal serves the routes that are the platform's and not the client's.
type internal struct{ Config }

// health answers 204, never 200: the SDKs take an empty 200 for a broken sandbox.
func health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// reportState tells the platform whether the sandbox is armed and still pristine.
func (i *internal) reportState(w http.ResponseWriter, r *http.Request) {
	if !i.fromPlatform(r) {
		httperror.Write(w, httperror.New(http.StatusUnauthorized, "/state is the platform's: send its token in %s", initHeader))
		return
	}
	settings := i.State.Settings()
	writeJSON(w, struct {
		Armed       bool   `json:"armed"`
		SandboxID   string `json:"sandboxId"`
		LifecycleID string `json:"lifecycleId,omitempty"`
		EverUsed    bool   `json:"everUsed"`
	}{i.State.Armed(), settings.SandboxID, settings.LifecycleID, i.State.EverUsed()})
}

// reportMetrics measures.
func (i *internal) reportMetrics(w http.ResponseWriter, _ *http.Request) {
	sample, err := i.Metrics.Sample()
	if err != nil {
		httperror.Write(w, err)
		return
	}
	writeJSON(w, sample)
}

// reportEnvs tells the global variables; the code interpreter reads them here.
func (i *internal) reportEnvs(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, i.State.Globals())
}

// fromPlatform is true for the holder of the init token; without one configured, for everybody that passed the gate.
func (i *internal) fromPlatform(r *http.Request) bool {
	return i.InitToken == "" || state.Equal(r.Header.Get(initHeader), i.InitToken)
}

// mayInit follows E2B's rule where no init token is configured: who sets up a secured sandbox again must know its token.
func (i *internal) mayInit(r *http.Request, accessToken string) bool {
	if i.InitToken != "" {
		return i.fromPlatform(r)
	}
	return !i.State.Secured() || i.State.TokenMatches(r.Header.Get(access.TokenHeader)) || i.State.TokenMatches(accessToken)
}

func notImplemented(w http.ResponseWriter, r *http.Request) {
	httperror.Write(w, httperror.New(http.StatusNotImplemented, "%s is not implemented: this envd runs in a container, and pausing a sandbox is the platform's work", r.URL.Path))
}

func writeJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(body)
}
