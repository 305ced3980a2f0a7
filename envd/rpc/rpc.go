// Package rpc holds what envd's Connect services have in common: who acts, keepalives, and how streams end.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"navix.sh/agentbox/envd/state"
	"navix.sh/agentbox/envd/users"
)

// KeepaliveHeader asks a server stream for a keepalive after so many seconds without a message.
const KeepaliveHeader = "Keepalive-Ping-Interval"

// defaultKeepalive serves clients that ask for none, or for nonsense.
const defaultKeepalive = 90 * time.Second

// maxKeepalive keeps the interval within time.Duration.
const maxKeepalive = 24 * 60 * 60

// User finds the account that a call acts as. The error is unauthenticated, with E2B's message.
func User(s *state.State, header http.Header) (users.User, error) {
	name := users.FromHeader(header)
	found, err := s.User(name)
	if err == nil {
		return found, nil
	}
	if name == "" {
		name = s.Settings().DefaultUser
	}
	message := fmt.Errorf("invalid username: '%s'", name)
	if errors.Is(err, users.ErrNotPermitted) {
		message = fmt.Errorf("%w: %w", message, users.ErrNotPermitted)
	}
	return users.User{}, connect.NewError(connect.CodeUnauthenticated, message)
}

// Keepalive ticks on C when nothing was sent for the interval; Reset after each message.
type Keepalive struct {
	*time.Ticker
	interval time.Duration
}

// NewKeepalive reads the interval from a header's value.
func NewKeepalive(header string) *Keepalive {
	interval := defaultKeepalive
	if seconds, err := strconv.Atoi(header); err == nil && seconds > 0 {
		interval = time.Duration(min(seconds, maxKeepalive)) * time.Second
	}
	return &Keepalive{Ticker: time.NewTicker(interval), interval: interval}
}

// Reset starts the interval anew.
func (k *Keepalive) Reset() { k.Ticker.Reset(k.interval) }

// Ended words the end of a request's context as the Connect code that clients expect.
func Ended(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return DeadlineExceeded("the deadline of this request has passed")
	}
	if errors.Is(err, context.Canceled) {
		return connect.NewError(connect.CodeCanceled, err)
	}
	return err
}

// DeadlineExceeded is the error that the SDKs turn into a timeout.
func DeadlineExceeded(message string) error {
	return connect.NewError(connect.CodeDeadlineExceeded, errors.New(message))
}
