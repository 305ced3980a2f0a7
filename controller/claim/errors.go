package claim

import "time"

// Code classifies a claim failure; surfaces map it to their own statuses.
type Code string

// The failures of a claim.
const (
	CodeInvalid      Code = "INVALID"       // the request can never succeed as it stands
	CodeNotFound     Code = "NOT_FOUND"     // no such env, pool, group or sandbox
	CodeNoCapacity   Code = "NO_CAPACITY"   // no member pool can serve it (no members, nothing idle before the deadline)
	CodeQueueFull    Code = "QUEUE_FULL"    // too many claims wait already
	CodeQuota        Code = "QUOTA"         // the owner's quota is spent
	CodePullFailed   Code = "PULL_FAILED"   // the image cannot be pulled; Message carries the registry's words
	CodePullTimeout  Code = "PULL_TIMEOUT"  // the image did not arrive within its budget
	CodeStartTimeout Code = "START_TIMEOUT" // the container or envd did not become ready within the budget
	CodeStartFailed  Code = "START_FAILED"  // the container or envd failed while starting
	CodeConflict     Code = "CONFLICT"      // the sandbox is already ending or changing
	CodeCanceled     Code = "CANCELED"      // the caller went away
	CodeInternal     Code = "INTERNAL"
)

// Error is a claim failure: what was wrong, and in Hint what to do next.
type Error struct {
	Code    Code
	Message string
	Hint    string
	// RetryAfter is how long to wait before trying again; 0 means that trying again does not help or is not known to.
	RetryAfter time.Duration
	// Err is the cause, for logs; it never travels to a client.
	Err error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }
