package native

import (
	"errors"
	"net/http"
)

// New makes the API's handler.
func New(o Options) (*Handler, error) {
	switch {
	case o.Client == nil:
		return nil, errors.New("native: Options.Client is required")
	case o.Claims == nil:
		return nil, errors.New("native: Options.Claims is required")
	case o.Access == nil:
		return nil, errors.New("native: Options.Access is required")
	case o.ClusterID == "":
		return nil, errors.New("native: Options.ClusterID is required")
	}
	return &Handler{opts: o, mux: http.NewServeMux()}, nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }
