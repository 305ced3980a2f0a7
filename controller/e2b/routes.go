package e2b

// routes is the whole surface: what is served, and the 501 answers of unsupported.go. GET /health is answered before
// authentication and is not in the table.
func (h *Handler) routes() []route {
	routes := []route{
		{"POST", "/sandboxes", h.createV1},
		{"POST", "/v2/sandboxes", h.createV2},
		{"GET", "/sandboxes", h.listV1},
		{"GET", "/v2/sandboxes", h.listV2},
		{"GET", "/sandboxes/metrics", h.metricsOfMany},
		{"GET", "/sandboxes/{sandboxID}", h.get},
		{"DELETE", "/sandboxes/{sandboxID}", h.kill},
		{"POST", "/sandboxes/{sandboxID}/timeout", h.timeout},
		{"POST", "/sandboxes/{sandboxID}/refreshes", h.refresh},
		{"POST", "/sandboxes/{sandboxID}/connect", h.connectV1},
		{"POST", "/v2/sandboxes/{sandboxID}/connect", h.connectV2},
		{"POST", "/sandboxes/{sandboxID}/resume", h.resume},
		{"GET", "/sandboxes/{sandboxID}/logs", h.logsV1},
		{"GET", "/v2/sandboxes/{sandboxID}/logs", h.logsV2},
		{"GET", "/sandboxes/{sandboxID}/metrics", h.metrics},
		{"GET", "/templates", h.listTemplates},
		{"GET", "/v2/templates", h.listTemplatesV2},
		{"GET", "/templates/aliases/{alias}", h.templateAlias},
		{"GET", "/templates/{templateID}", h.getTemplate},
	}
	for _, m := range Unsupported {
		routes = append(routes, h.missing(m))
	}
	return routes
}
