package e2b

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

// Error codes of E2B's open set, and one of ours.
const (
	codeCapacity       = "sandbox_capacity_unavailable"
	codePlacement      = "sandbox_placement_timeout"
	codeCreateFailed   = "sandbox_create_failed"
	codeInternal       = "internal_server_error"
	codeNotImplemented = "not_implemented"
)

// apiError is an answer other than success. Its JSON field `code` repeats the status: the SDKs tell a missing sandbox
// by that field, not by the status line.
type apiError struct {
	Status     int
	Message    string
	ErrorCode  string
	RetryAfter time.Duration
	// Allow lists the methods of a path, for 405.
	Allow string
	// Err is for the log and never leaves the process.
	Err error
}

func (e *apiError) Error() string { return e.Message }
func (e *apiError) Unwrap() error { return e.Err }

// errorBody is E2B's error object.
type errorBody struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

func sandboxNotFound(id string) *apiError {
	return &apiError{Status: http.StatusNotFound,
		Message: fmt.Sprintf("Sandbox %q doesn't exist or you don't have access to it", id)}
}

// claimStatus maps a claim's failure to E2B's answer. This is the only such table.
var claimStatus = map[claim.Code]struct {
	status    int
	errorCode string
}{
	claim.CodeInvalid:      {http.StatusBadRequest, ""},
	claim.CodeNotFound:     {http.StatusNotFound, ""},
	claim.CodeNoCapacity:   {http.StatusServiceUnavailable, codeCapacity},
	claim.CodeQueueFull:    {http.StatusTooManyRequests, codeCapacity},
	claim.CodeQuota:        {http.StatusTooManyRequests, codeCapacity},
	claim.CodePullFailed:   {http.StatusInternalServerError, codeCreateFailed},
	claim.CodePullTimeout:  {http.StatusGatewayTimeout, codePlacement},
	claim.CodeStartTimeout: {http.StatusGatewayTimeout, codePlacement},
	claim.CodeStartFailed:  {http.StatusInternalServerError, codeCreateFailed},
	claim.CodeConflict:     {http.StatusConflict, ""},
	claim.CodeCanceled:     {statusClientClosed, ""},
	claim.CodeInternal:     {http.StatusInternalServerError, codeInternal},
}

// statusClientClosed is written for the log: nobody is there to read it.
const statusClientClosed = 499

// defaultRetryAfter is sent with 429 when the claim path names no time: without one the SDKs do not try again.
const defaultRetryAfter = time.Second

// toAPIError turns any error of the layers below into an answer that says nothing it should not.
func toAPIError(err error) *apiError {
	var api *apiError
	var failed *claim.Error
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &failed):
		return fromClaim(failed)
	case errors.Is(err, access.ErrUnauthenticated):
		return &apiError{Status: http.StatusUnauthorized, Err: err,
			Message: "no valid API key was presented: send one in X-API-KEY (agbx_… or e2b_…); `abx create api-keys` makes one"}
	case errors.Is(err, access.ErrForbidden):
		return &apiError{Status: http.StatusForbidden, Message: err.Error(), Err: err}
	case errors.Is(err, access.ErrNotFound):
		return &apiError{Status: http.StatusNotFound, Message: "not found", Err: err}
	case errors.Is(err, access.ErrUnavailable):
		return &apiError{Status: http.StatusServiceUnavailable, Message: err.Error(), Err: err, RetryAfter: time.Second}
	case errors.Is(err, context.Canceled):
		return &apiError{Status: statusClientClosed, Message: "the client went away", Err: err}
	default:
		return &apiError{Status: http.StatusInternalServerError, ErrorCode: codeInternal, Err: err,
			Message: "the platform failed to answer; its log has the cause under this request id"}
	}
}

func fromClaim(e *claim.Error) *apiError {
	to, ok := claimStatus[e.Code]
	if !ok {
		to = claimStatus[claim.CodeInternal]
	}
	message := e.Message
	if e.Code == claim.CodeInternal {
		message = "the platform failed: " + message
	}
	if e.Hint != "" {
		message += ". " + e.Hint
	}
	out := &apiError{Status: to.status, ErrorCode: to.errorCode, Message: message, RetryAfter: e.RetryAfter, Err: e}
	if out.Status == http.StatusTooManyRequests && out.RetryAfter == 0 {
		out.RetryAfter = defaultRetryAfter
	}
	return out
}

// level is at which level the log has the answer, if at all. A platform that is full is what quotas and queues are
// for, and no fault of it.
func (e *apiError) level() (slog.Level, bool) {
	switch {
	case e.ErrorCode == codeCapacity:
		return slog.LevelInfo, true
	case e.Status >= http.StatusInternalServerError && e.ErrorCode != codeNotImplemented:
		return slog.LevelError, true
	}
	return 0, false
}

// retryAfter is whole seconds, rounded up: the SDKs read no other form.
func (e *apiError) retryAfter() string {
	if e.RetryAfter <= 0 {
		return ""
	}
	return fmt.Sprint(int64(math.Ceil(e.RetryAfter.Seconds())))
}
