package e2b

// routes is the whole served surface; what E2B has and this platform has not is in unsupported.go.
func (h *Handler) routes() []route {
	return nil
}
