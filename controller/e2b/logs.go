package e2b

import (
	"context"
	"io"
	"time"

	"navix.sh/agentbox/controller/claim"
)

// LogReader opens the log of a sandbox's main container from a time on, at most lines from the end (0: all). Each line
// is led by an RFC 3339 time with nanoseconds and a blank, as `kubectl logs --timestamps` prints it.
type LogReader func(ctx context.Context, sb claim.Sandbox, since time.Time, lines int64) (io.ReadCloser, error)
