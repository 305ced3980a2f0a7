package e2b

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

// Bounds of a refresh, in seconds.
const (
	minRefresh = 15
	maxRefresh = 3600
)

func (h *Handler) get(ctx context.Context, c *call) (reply, error) {
	sb, err := h.sandbox(ctx, c, access.VerbGet)
	if err != nil {
		return reply{}, err
	}
	return reply{Status: http.StatusOK, Body: h.detail(c.Request, sb)}, nil
}

func (h *Handler) kill(ctx context.Context, c *call) (reply, error) {
	sb, err := h.sandbox(ctx, c, access.VerbDelete)
	if err != nil {
		return reply{}, err
	}
	if err := h.claims.Kill(ctx, sb.ID, claim.ReasonKilled); err != nil {
		return reply{}, missing(err, sb.ID)
	}
	return reply{Status: http.StatusNoContent}, nil
}

// timeout sets the end of a sandbox from now; it may shorten.
func (h *Handler) timeout(ctx context.Context, c *call) (reply, error) {
	sb, err := h.sandbox(ctx, c, access.VerbUpdate)
	if err != nil {
		return reply{}, err
	}
	var body struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := c.decode(&body, false); err != nil {
		return reply{}, err
	}
	if body.Timeout == nil {
		return reply{}, badRequest("timeout is required: seconds from now until the sandbox ends")
	}
	if *body.Timeout == 0 {
		return reply{}, badRequest("Timeout must be greater than 0 seconds; to end the sandbox now, kill it (DELETE /sandboxes/%s)", sb.ID)
	}
	d, err := seconds("Timeout", *body.Timeout)
	if err != nil {
		return reply{}, err
	}
	if _, err := h.claims.SetTimeout(ctx, sb.ID, d); err != nil {
		return reply{}, missing(err, sb.ID)
	}
	return reply{Status: http.StatusNoContent}, nil
}

// refresh keeps a sandbox for a while longer; it never shortens.
func (h *Handler) refresh(ctx context.Context, c *call) (reply, error) {
	sb, err := h.sandbox(ctx, c, access.VerbUpdate)
	if err != nil {
		return reply{}, err
	}
	var body struct {
		Duration *int64 `json:"duration"`
	}
	if err := c.decode(&body, true); err != nil {
		return reply{}, err
	}
	n := int64(minRefresh)
	if body.Duration != nil {
		if *body.Duration < 0 || *body.Duration > maxRefresh {
			return reply{}, badRequest("validation error: duration is %d: want 0 to %d seconds", *body.Duration, maxRefresh)
		}
		n = max(n, *body.Duration)
	}
	if _, err := h.claims.Extend(ctx, sb.ID, time.Duration(n)*time.Second); err != nil {
		return reply{}, missing(err, sb.ID)
	}
	return reply{Status: http.StatusNoContent}, nil
}

// connectBody is the body of connect. Memory says how to bring a paused sandbox back; a running one has no use for it.
type connectBody struct {
	Timeout *int64 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

func (h *Handler) connectV1(ctx context.Context, c *call) (reply, error) {
	return h.connect(ctx, c, false)
}

func (h *Handler) connectV2(ctx context.Context, c *call) (reply, error) {
	return h.connect(ctx, c, true)
}

// connect hands out a running sandbox and makes it live at least as long as asked. It never shortens a life.
func (h *Handler) connect(ctx context.Context, c *call, optional bool) (reply, error) {
	sb, err := h.sandbox(ctx, c, access.VerbUse)
	if err != nil {
		return reply{}, err
	}
	var body connectBody
	if err := c.decode(&body, optional); err != nil {
		return reply{}, err
	}
	d := defaultTimeoutV2
	switch {
	case body.Timeout != nil && *body.Timeout < 0:
		return reply{}, badRequest("Timeout must not be negative; got %d. Zero leaves the sandbox's end as it is", *body.Timeout)
	case body.Timeout != nil && *body.Timeout == 0:
		return reply{Status: http.StatusOK, Body: h.sandboxBody(c.Request, sb)}, nil
	case body.Timeout != nil:
		if d, err = seconds("Timeout", *body.Timeout); err != nil {
			return reply{}, err
		}
	case !optional:
		return reply{}, badRequest("timeout is required: seconds that the sandbox lives on at least")
	}
	if sb, err = h.claims.Extend(ctx, sb.ID, d); err != nil {
		return reply{}, missing(err, c.params["sandboxID"])
	}
	return reply{Status: http.StatusOK, Body: h.sandboxBody(c.Request, sb)}, nil
}

// resume is what SDKs up to 2.4 call to bring a paused sandbox back. Nothing is ever paused: a live one conflicts,
// which those SDKs read as "it runs already".
func (h *Handler) resume(ctx context.Context, c *call) (reply, error) {
	sb, err := h.sandbox(ctx, c, access.VerbUse)
	if err != nil {
		return reply{}, err
	}
	var body struct {
		connectBody
		AutoPause *bool `json:"autoPause"`
	}
	if err := c.decode(&body, true); err != nil {
		return reply{}, err
	}
	return reply{}, &apiError{Status: http.StatusConflict, Message: fmt.Sprintf("Sandbox %s is already running", sb.ID)}
}
