package native

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/controller/claim"
)

// code is an errorCode of the API. Clients branch on it.
type code string

const (
	codeInvalidParameter code = "INVALID_PARAMETER"
	codeInvalidBody      code = "INVALID_BODY"
	codeFixedField       code = "FIXED_FIELD"
	codeUnauthenticated  code = "UNAUTHENTICATED"
	codeForbidden        code = "FORBIDDEN"
	codeForbiddenAgent   code = "FORBIDDEN_FOR_AGENT"
	codeApproval         code = "APPROVAL_REQUIRED"
	codeNotFound         code = "NOT_FOUND"
	codeMethod           code = "METHOD_NOT_ALLOWED"
	codeConflict         code = "CONFLICT"
	codeTooLarge         code = "CONTENT_TOO_LARGE"
	codeMediaType        code = "UNSUPPORTED_MEDIA_TYPE"
	codeQuota            code = "QUOTA_EXCEEDED"
	codeRate             code = "RATE_LIMITED"
	codeCapacity         code = "NO_CAPACITY"
	codeUnavailable      code = "UNAVAILABLE"
	codeTimeout          code = "START_TIMEOUT"
	codeNotImplemented   code = "NOT_IMPLEMENTED"
	codeInternal         code = "INTERNAL"
)

// apiError is a refusal as it travels: what was wrong, and in hint what would be right and what to do next.
type apiError struct {
	status     int
	code       code
	message    string
	hint       []string
	detail     any
	retryAfter time.Duration
	allow      string
	// cause is for the log; it never travels.
	cause error
}

func (e *apiError) Error() string { return e.message }

func (e *apiError) Unwrap() error { return e.cause }

func badParameter(hint, format string, args ...any) *apiError {
	return refuse(http.StatusBadRequest, codeInvalidParameter, hint, format, args...)
}

func badBody(hint, format string, args ...any) *apiError {
	return refuse(http.StatusBadRequest, codeInvalidBody, hint, format, args...)
}

func notFound(kind, name, hint string) *apiError {
	return refuse(http.StatusNotFound, codeNotFound, hint, "%s %q was not found", kind, name)
}

func conflict(hint, format string, args ...any) *apiError {
	return refuse(http.StatusConflict, codeConflict, hint, format, args...)
}

func notImplemented(hint, format string, args ...any) *apiError {
	return refuse(http.StatusNotImplemented, codeNotImplemented, hint, format, args...)
}

func refuse(status int, c code, hint, format string, args ...any) *apiError {
	e := &apiError{status: status, code: c, message: fmt.Sprintf(format, args...)}
	if hint != "" {
		e.hint = []string{hint}
	}
	return e
}

// asAPIError says what any error means to a client. What it does not know is the server's fault, and only its log
// says what happened.
func asAPIError(err error) *apiError {
	var known *apiError
	if errors.As(err, &known) {
		return known
	}
	for _, f := range []func(error) *apiError{fromAccess, fromClaim, fromQuota, fromKubernetes} {
		if e := f(err); e != nil {
			return e
		}
	}
	return &apiError{
		status: http.StatusInternalServerError, code: codeInternal, cause: err,
		message: "the request failed inside the server",
		hint:    []string{"try again; if it stays, report the requestId to the operator"},
	}
}

func fromAccess(err error) *apiError {
	var never *access.ForbiddenForAgentError
	switch {
	case errors.As(err, &never):
		e := refuse(http.StatusForbidden, codeForbiddenAgent, "no approval opens this: a person does it with a key of their own", "%s", never.Error())
		e.detail = map[string]string{"operation": never.Operation.ID, "summary": never.Operation.Act}
		return e
	case errors.Is(err, access.ErrUnauthenticated):
		return refuse(http.StatusUnauthorized, codeUnauthenticated,
			"send a key in the AGENTBOX-API-KEY header, or as `Authorization: Bearer`", "no key was sent, or it is unknown, revoked or expired")
	case errors.Is(err, access.ErrForbidden):
		return refuse(http.StatusForbidden, codeForbidden, "this needs an admin key", "this key is not allowed to do that")
	case errors.Is(err, access.ErrNotFound):
		return refuse(http.StatusNotFound, codeNotFound, "list what there is, and check the name", "not found")
	case errors.Is(err, access.ErrUnavailable):
		e := refuse(http.StatusServiceUnavailable, codeUnavailable, "try again shortly", "%s", err.Error())
		e.retryAfter = time.Second
		return e
	case errors.Is(err, access.ErrExists):
		return conflict("delete the one that is there first, or import another", "%s", err.Error())
	case errors.Is(err, access.ErrLastAdmin):
		return conflict("issue another admin key, then delete this one", "%s", err.Error())
	case errors.Is(err, access.ErrInvalid):
		return badBody("correct it and send it again", "%s", err.Error())
	}
	return nil
}

func fromClaim(err error) *apiError {
	var c *claim.Error
	if !errors.As(err, &c) {
		return nil
	}
	status, mapped := http.StatusInternalServerError, codeInternal
	switch c.Code {
	case claim.CodeInvalid:
		status, mapped = http.StatusBadRequest, codeInvalidBody
	case claim.CodeNotFound:
		status, mapped = http.StatusNotFound, codeNotFound
	case claim.CodeNoCapacity:
		status, mapped = http.StatusServiceUnavailable, codeCapacity
	case claim.CodeQueueFull:
		status, mapped = http.StatusTooManyRequests, codeRate
	case claim.CodeQuota:
		status, mapped = http.StatusTooManyRequests, codeQuota
	case claim.CodePullTimeout, claim.CodeStartTimeout:
		status, mapped = http.StatusGatewayTimeout, codeTimeout
	case claim.CodePullFailed, claim.CodeStartFailed:
		status, mapped = http.StatusInternalServerError, code(c.Code)
	case claim.CodeConflict:
		status, mapped = http.StatusConflict, codeConflict
	case claim.CodeCanceled:
		status, mapped = http.StatusServiceUnavailable, codeUnavailable
	}
	e := refuse(status, mapped, c.Hint, "%s", c.Message)
	e.retryAfter, e.cause = c.RetryAfter, err
	return e
}

func fromQuota(err error) *apiError {
	var spent *catalogue.ExhaustedError
	switch {
	case errors.As(err, &spent):
		return refuse(http.StatusTooManyRequests, codeQuota,
			"ask for fewer replicas, free some in another pool, or ask whoever owns the quota", "%s", spent.Error())
	case errors.Is(err, catalogue.ErrUnknownQuota):
		return badBody("list the quotas to see their names", "label quota.scitix.ai/url: %s", err.Error())
	}
	return nil
}

func fromKubernetes(err error) *apiError {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return refuse(http.StatusServiceUnavailable, codeUnavailable, "try again", "the request ended before it was answered")
		}
		return nil
	}
	var e *apiError
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		e = badBody("correct it and send it again", "%s", kubernetesReasons(status))
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		e = conflict("read it again and repeat the change", "it exists already, or changed meanwhile")
	case apierrors.IsNotFound(err):
		what := "not found"
		if d := status.Status().Details; d != nil && d.Kind == "namespaces" {
			what = fmt.Sprintf("namespace %q is not there", d.Name)
		}
		e = refuse(http.StatusNotFound, codeNotFound, "list what there is, and check the name", "%s", what)
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsServiceUnavailable(err):
		e = refuse(http.StatusServiceUnavailable, codeUnavailable, "try again", "the Kubernetes API is not able to answer right now")
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			e.retryAfter = time.Duration(seconds) * time.Second
		}
	default:
		return nil
	}
	e.cause = err
	return e
}

// kubernetesReasons says what the API server's validation found, without its preamble about kinds and names.
func kubernetesReasons(s apierrors.APIStatus) string {
	st := s.Status()
	if st.Details == nil || len(st.Details.Causes) == 0 {
		return st.Message
	}
	out := ""
	for i, c := range st.Details.Causes {
		if i > 0 {
			out += "; "
		}
		out += c.Field + ": " + c.Message
	}
	return out
}

// errorResponse is ErrorResponse of the document.
type errorResponse struct {
	Error     string   `json:"error"`
	ErrorCode code     `json:"errorCode,omitempty"`
	Detail    any      `json:"detail,omitempty"`
	Hint      []string `json:"hint,omitempty"`
	RequestID string   `json:"requestId,omitempty"`
}

func (h *Handler) writeError(w http.ResponseWriter, requestID string, e *apiError) {
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.retryAfter.Seconds()))))
	}
	if e.allow != "" {
		w.Header().Set("Allow", e.allow)
	}
	if e.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="agentbox"`)
	}
	writeJSON(w, e.status, errorResponse{Error: e.message, ErrorCode: e.code, Detail: e.detail, Hint: e.hint, RequestID: requestID})
}
