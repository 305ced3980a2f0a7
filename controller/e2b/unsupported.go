package e2b

import (
	"context"
	"net/http"
)

// Missing is a part of E2B's API that this platform does not have. docs/compatibility.md lists it.
type Missing struct {
	Method, Path string
	// Feature says what the route is for; Instead what to do without it.
	Feature, Instead string
}

// Unsupported are the routes that answer 501.
var Unsupported = []Missing{
	{"POST", "/sandboxes/{sandboxID}/pause", "pausing a sandbox", keepRunning},
	{"PUT", "/sandboxes/{sandboxID}/network", "changing a sandbox's network policy", "there is no egress control yet"},
	{"POST", "/sandboxes/{sandboxID}/snapshots", "snapshots", keepRunning},
	{"POST", "/sandboxes/{sandboxID}/fork", "forking a sandbox", "create another one"},
	{"GET", "/snapshots", "snapshots", keepRunning},

	{"POST", "/templates", "building templates", useImages},
	{"POST", "/v2/templates", "building templates", useImages},
	{"POST", "/v3/templates", "building templates", useImages},
	{"POST", "/templates/{templateID}", "building templates", useImages},
	{"PATCH", "/templates/{templateID}", "changing templates", useImages},
	{"PATCH", "/v2/templates/{templateID}", "changing templates", useImages},
	{"DELETE", "/templates/{templateID}", "deleting templates and snapshots", "delete the environment with `abx delete envs`"},
	{"POST", "/templates/{templateID}/builds/{buildID}", "building templates", useImages},
	{"POST", "/v2/templates/{templateID}/builds/{buildID}", "building templates", useImages},
	{"GET", "/templates/{templateID}/builds/{buildID}/status", "building templates", useImages},
	{"GET", "/templates/{templateID}/builds/{buildID}/logs", "building templates", useImages},
	{"GET", "/templates/{templateID}/files/{hash}", "building templates", useImages},
	{"GET", "/templates/{templateID}/tags", "template tags", useImages},
	{"POST", "/templates/tags", "template tags", useImages},
	{"DELETE", "/templates/tags", "template tags", useImages},

	{"GET", "/secrets", "the vault", passEnv},
	{"POST", "/secrets", "the vault", passEnv},
	{"GET", "/secrets/{secretID}", "the vault", passEnv},
	{"POST", "/secrets/{secretID}", "the vault", passEnv},
	{"DELETE", "/secrets/{secretID}", "the vault", passEnv},

	{"GET", "/volumes", "volumes", mountVolumes},
	{"POST", "/volumes", "volumes", mountVolumes},
	{"GET", "/volumes/{volumeID}", "volumes", mountVolumes},
	{"DELETE", "/volumes/{volumeID}", "volumes", mountVolumes},

	{"GET", "/volumecontent/{volumeID}/{path...}", "files of volumes", mountVolumes},
	{"POST", "/volumecontent/{volumeID}/{path...}", "files of volumes", mountVolumes},
	{"PUT", "/volumecontent/{volumeID}/{path...}", "files of volumes", mountVolumes},
	{"PATCH", "/volumecontent/{volumeID}/{path...}", "files of volumes", mountVolumes},
	{"DELETE", "/volumecontent/{volumeID}/{path...}", "files of volumes", mountVolumes},

	{"GET", "/teams", "teams", useAbx},
	{"GET", "/teams/{teamID}/metrics", "team metrics", useAbx},
	{"GET", "/teams/{teamID}/metrics/max", "team metrics", useAbx},
	{"GET", "/nodes", "nodes", useAbx},
	{"GET", "/nodes/{nodeID}", "nodes", useAbx},
	{"POST", "/nodes/{nodeID}", "nodes", useAbx},
	{"POST", "/access-tokens", "access tokens", useAbx},
	{"DELETE", "/access-tokens/{accessTokenID}", "access tokens", useAbx},
	{"GET", "/api-keys", "managing API keys", useAbx},
	{"POST", "/api-keys", "managing API keys", useAbx},
	{"PATCH", "/api-keys/{apiKeyID}", "managing API keys", useAbx},
	{"DELETE", "/api-keys/{apiKeyID}", "managing API keys", useAbx},
	{"GET", "/admin/{path...}", "administration", useAbx},
	{"POST", "/admin/{path...}", "administration", useAbx},
	{"PUT", "/admin/{path...}", "administration", useAbx},
	{"PATCH", "/admin/{path...}", "administration", useAbx},
	{"DELETE", "/admin/{path...}", "administration", useAbx},
}

const (
	keepRunning  = "keep the sandbox running with a longer timeout, or copy its files out"
	useImages    = "name an image with \"env//image\", or change the environment's template"
	passEnv      = "pass values in envVars"
	mountVolumes = "volumes are mounted by the environment (spec.overrides.volumes)"
	useAbx       = "use `abx` and the platform's own API"
)

func (h *Handler) missing(m Missing) route {
	count := h.unsupported.WithLabelValues(m.Method + " " + m.Path)
	return route{m.Method, m.Path, func(context.Context, *call) (reply, error) {
		count.Inc()
		return reply{}, notImplemented(m.Feature, m.Instead)
	}}
}

func notImplemented(feature, instead string) *apiError {
	return &apiError{Status: http.StatusNotImplemented, ErrorCode: codeNotImplemented,
		Message: feature + " is not implemented on this platform: " + instead}
}
