package access

import (
	"errors"
	"fmt"
)

// The answers of Authenticate and Authorize. Surfaces map them to their own statuses with errors.Is and errors.As.
var (
	// ErrUnauthenticated means that no valid key was presented: missing, malformed, unknown, revoked or expired.
	// The text is the same for all of them, so that it tells a guesser nothing.
	ErrUnauthenticated = errors.New("no valid API key was presented")
	// ErrForbidden means that the key's role does not allow the act.
	ErrForbidden = errors.New("this API key is not allowed to do that")
	// ErrNotFound means that the object is not the caller's. It reads the same as an object that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable means that keys cannot be checked right now: the store has not been read yet.
	ErrUnavailable = errors.New("API keys cannot be checked yet: the key store is still being read; try again shortly")
	// ErrExists means that the key to import is there already.
	ErrExists = errors.New("this API key exists already")
	// ErrLastAdmin means that deleting the key would leave nobody to administer the platform.
	ErrLastAdmin = errors.New("this is the last admin key: issue another admin key before deleting it")
	// ErrInvalid is wrapped by errors about what a key was asked to be.
	ErrInvalid = errors.New("invalid key")
)

// ForbiddenForAgentError means that an agent key may never do this: there is no approval to wait for.
type ForbiddenForAgentError struct {
	Operation Operation
}

func (e *ForbiddenForAgentError) Error() string {
	return fmt.Sprintf("an agent key may never %s; a person does it with a key of their own", e.Operation.Act)
}

// Is makes errors.Is(err, ErrForbidden) true: a surface without an answer of its own for agents refuses.
func (e *ForbiddenForAgentError) Is(target error) bool { return target == ErrForbidden }

// ApprovalRequiredError means that a person must approve the act of an agent key first.
type ApprovalRequiredError struct {
	Operation Operation
}

func (e *ApprovalRequiredError) Error() string {
	return fmt.Sprintf("an agent key may %s only after a person has approved it", e.Operation.Act)
}

// Is makes errors.Is(err, ErrForbidden) true: a surface that knows no approvals refuses.
func (e *ApprovalRequiredError) Is(target error) bool { return target == ErrForbidden }
