package client

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

const (
	maxRetries    = 3
	maxRetryAfter = 20 * time.Second
	noRetry       = -1 * time.Second
)

// retryTransport says whether a call without an answer may be sent again: a read
// whose connection broke. An address that refuses or does not exist fails at once.
func retryTransport(method string, err error) time.Duration {
	if method != http.MethodGet {
		return noRetry
	}
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return noRetry
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return 0
	}
	return noRetry
}

// retryStatus says whether an answer asks for another attempt.
func retryStatus(method string, answer *http.Response) time.Duration {
	after, given := retryAfter(answer.Header.Get("Retry-After"))
	switch answer.StatusCode {
	case http.StatusTooManyRequests:
		return after
	case http.StatusServiceUnavailable:
		// 503 with Retry-After says that the request was not taken; without it a write may have been.
		if method == http.MethodGet || given {
			return after
		}
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		if method == http.MethodGet {
			return after
		}
	}
	return noRetry
}

// retryAfter reads the header in both forms, capped.
func retryAfter(header string) (time.Duration, bool) {
	if header == "" {
		return 0, false
	}
	if seconds, err := strconv.Atoi(header); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, 3600))*time.Second, maxRetryAfter), true
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter), true
	}
	return 0, false
}

// pause is how long to wait before the next attempt: what the server asked for, or a growing time with jitter.
func pause(attempt int, asked time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	base := 200 * time.Millisecond << attempt
	return base/2 + rand.N(base)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
