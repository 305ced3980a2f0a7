package clierr

// The codes of errors that the command line itself finds. A server sends some of these
// and others of its own (Exits has them); the exit code of one that is in no list
// follows from the HTTP status.
const (
	ServerError       = "SERVER_ERROR"
	BadResponse       = "BAD_RESPONSE"
	NotImplemented    = "NOT_IMPLEMENTED"
	Internal          = "INTERNAL"
	UnknownCommand    = "UNKNOWN_COMMAND"
	UnknownResource   = "UNKNOWN_RESOURCE"
	UnknownFlag       = "UNKNOWN_FLAG"
	MissingValue      = "MISSING_VALUE"
	InvalidValue      = "INVALID_VALUE"
	InvalidBody       = "INVALID_BODY"
	InvalidConfig     = "INVALID_CONFIG"
	UnknownField      = "UNKNOWN_FIELD"
	UnknownContext    = "UNKNOWN_CONTEXT"
	AmbiguousCluster  = "AMBIGUOUS_CLUSTER"
	Unsupported       = "UNSUPPORTED"
	Unauthenticated   = "UNAUTHENTICATED"
	Forbidden         = "FORBIDDEN"
	ForbiddenForAgent = "FORBIDDEN_FOR_AGENT"
	NotFound          = "NOT_FOUND"
	Timeout           = "TIMEOUT"
	Capacity          = "CAPACITY"
	RateLimited       = "RATE_LIMITED"
	Conflict          = "CONFLICT"
	ApprovalRequired  = "APPROVAL_REQUIRED"
	ApprovalDenied    = "APPROVAL_DENIED"
	Unreachable       = "UNREACHABLE"
	NotConfigured     = "NOT_CONFIGURED"
	Interrupted       = "INTERRUPTED"
	QueryFailed       = "QUERY_FAILED"
)

// Exit codes of the program. Scripts branch on them, so they never change meaning.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitDenied      = 3
	ExitNotFound    = 4
	ExitTimeout     = 5
	ExitCapacity    = 6
	ExitConflict    = 7
	ExitApproval    = 8
	ExitUnreachable = 9
	ExitInterrupted = 130
)

// Exit describes one exit code for help, agent-context and documentation. Examples are
// all its error codes, the server's too; a test compares them with the server's list.
type Exit struct {
	Code     int      `json:"code"`
	Meaning  string   `json:"meaning"`
	Examples []string `json:"errorCodes,omitempty"`
}

// Exits is the exit-code table, in order. ExitCode reads it: it is the only place
// that says which error ends with which code.
var Exits = []Exit{
	{ExitOK, "done; an empty list is done", nil},
	{ExitFailure, "the server failed or answered with something that is not its API, or a bug", []string{
		ServerError, BadResponse, NotImplemented, QueryFailed, Internal, "PULL_FAILED", "START_FAILED"}},
	{ExitUsage, "usage: grammar, flags, filters or the body are wrong, and nothing was done; with a status the server refused it, without one abx did before sending it", []string{
		UnknownCommand, UnknownResource, "UNKNOWN_CHILD", "NOT_A_ROOT", "NO_ADDRESS", "MISSING_ID", "INVALID_ID", "TOO_MANY_WORDS",
		"NOT_READABLE", "UNSUPPORTED_VERB", "WRONG_VERB_TARGET", UnknownFlag, UnknownField, UnknownContext, AmbiguousCluster,
		MissingValue, InvalidValue, InvalidBody, InvalidConfig, Unsupported,
		"INVALID_PARAMETER", "FIXED_FIELD", "METHOD_NOT_ALLOWED", "CONTENT_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"}},
	{ExitDenied, "not allowed: the key is missing, wrong or may not do this", []string{
		Unauthenticated, Forbidden, ForbiddenForAgent, ApprovalDenied}},
	{ExitNotFound, "not found", []string{NotFound}},
	{ExitTimeout, "a wait or a request ran out of time", []string{Timeout, "START_TIMEOUT"}},
	{ExitCapacity, "quota, capacity or rate: try again later", []string{Capacity, RateLimited, "NO_CAPACITY", "QUOTA_EXCEEDED", "UNAVAILABLE"}},
	{ExitConflict, "conflict: it exists already, or it changed since it was read", []string{Conflict}},
	{ExitApproval, "a person must approve first; the request is waiting", []string{ApprovalRequired}},
	{ExitUnreachable, "the address could not be reached, or no deployment is configured", []string{Unreachable, NotConfigured}},
	{ExitInterrupted, "interrupted", []string{Interrupted}},
}

// ExitCode returns the exit code of an error code, and ExitFailure for one it does not know.
func ExitCode(code string) int {
	for _, e := range Exits {
		for _, c := range e.Examples {
			if c == code {
				return e.Code
			}
		}
	}
	return ExitFailure
}

// CodeOfStatus returns the error code of an HTTP status when the server gave none of its own.
func CodeOfStatus(status int) string {
	switch status {
	case 400, 405, 413, 415, 422:
		return InvalidValue
	case 401, 407:
		return Unauthenticated
	case 403:
		return Forbidden
	case 404, 410:
		return NotFound
	case 408, 504:
		return Timeout
	case 409, 412:
		return Conflict
	case 428:
		return ApprovalRequired
	case 429:
		return RateLimited
	case 501:
		return NotImplemented
	case 503:
		return Capacity
	}
	return ServerError
}
