package claim

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	errStartupTimeout = errors.New("the startup timeout has passed")
	errPullBudget     = errors.New("the pull budget is spent")
	errStartBudget    = errors.New("the start budget is spent")
)

// budgets splits what is left of the startup timeout: a quarter, between 2 and 30 seconds, is kept for starting, so
// that a stalled pull and a slow start are told apart.
func budgets(left time.Duration) (pull, start time.Duration) {
	start = min(max(left/4, 2*time.Second), 30*time.Second)
	if start > left/2 {
		start = left / 2
	}
	return left - start, start
}

// prepare makes a claimed Pod the sandbox: swaps its image where it must, arms envd, and opens the route.
func (m *Manager) prepare(ctx context.Context, c *claimSpec, sb *sandbox) (Sandbox, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(sb.life, func() { cancel(errStopping) })()
	start := c.deadline.Sub(m.clock.Now())
	if sb.swap != nil {
		var pull time.Duration
		pull, start = budgets(start)
		if err := m.awaitSwap(ctx, sb, pull); err != nil {
			return Sandbox{}, err
		}
	}
	return m.arm(ctx, c, sb, start)
}

// arm delivers the sandbox's environment and token to envd.
func (m *Manager) arm(ctx context.Context, c *claimSpec, sb *sandbox, budget time.Duration) (Sandbox, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, budget, errStartBudget)
	defer cancel()
	m.mu.Lock()
	pod := sb.pod.pod
	if s := mainStatus(pod); s != nil {
		sb.info.ContainerID = s.ContainerID
	}
	sb.info.PodIP = pod.Status.PodIP
	pl := sb.pod.pool
	ending := sb.ending
	sb.used = sb.used || !ending
	m.mu.Unlock()
	if ending {
		return Sandbox{}, errStopping
	}

	token, err := m.initToken(ctx, pl)
	if err != nil {
		return Sandbox{}, err
	}
	now := m.clock.Now()
	err = initEnvd(ctx, m.envd, pod.Status.PodIP, token, &envdInit{
		AccessToken: c.secrets.Access,
		EnvVars:     c.request.EnvVars,
		SandboxID:   sb.id,
		Timestamp:   now,
		LifecycleID: sb.id,
	})
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, errStartBudget) || errors.Is(cause, errStartupTimeout)) {
		err = &Error{
			Code:       CodeStartTimeout,
			Message:    fmt.Sprintf("envd did not become ready within its start budget of %s (startup timeout %s): %v", budget.Round(time.Millisecond), c.startup, err),
			Hint:       "allow a longer startup timeout, or look at the sandbox container's log",
			RetryAfter: time.Second,
		}
	}
	if err != nil {
		return Sandbox{}, err
	}

	now = m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if sb.ending {
		return Sandbox{}, errStopping
	}
	info := &sb.info
	info.StartedAt, info.LastActive, info.Armed, info.Status = now, now, true, StatusRunning
	if info.TimeoutMode == TimeoutAbsolute && info.Timeout > 0 {
		info.EndAt = now.Add(info.Timeout)
	}
	sb.touch(now)
	m.resume(sb)
	if sb.ending {
		return Sandbox{}, errStopping
	}
	m.spawnLocked(func() { m.settleArmed(sb) }) // when the controller stops, the next one asks envd
	return sb.snapshot(), nil
}

// resume opens an armed sandbox to traffic and starts its clock, unless its Pod has not survived. The caller holds mu.
func (m *Manager) resume(sb *sandbox) {
	m.reviewClaim(sb)
	if !sb.ending {
		m.route(sb)
		m.timers.set(sb, sb.endAt())
	}
}

// abandon ends a claim that did not become a sandbox.
func (m *Manager) abandon(sb *sandbox, cause error) {
	end := ending{status: StatusFailed}
	var failure *Error
	switch {
	case errors.Is(cause, errStartupTimeout):
		end.reason = "StartupTimeout"
		end.message = cause.Error()
	case errors.As(cause, &failure):
		end.reason = failureReason(failure.Code)
		end.message = failure.Message
	default:
		end.status = StatusCanceled
	}
	m.end(sb, end)
}

func failureReason(c Code) string {
	switch c {
	case CodePullFailed:
		return "PullFailed"
	case CodePullTimeout:
		return "PullTimeout"
	case CodeStartTimeout:
		return "StartTimeout"
	default:
		return "StartFailed"
	}
}

// explain turns an error of the claim path into one that says what to do.
func (m *Manager) explain(ctx context.Context, err error) error {
	var done *Error
	switch {
	case errors.As(err, &done):
		return done
	case m.life.Err() != nil:
		return &Error{Code: CodeInternal, Message: "the controller is stopping", Hint: "try again", RetryAfter: time.Second, Err: err}
	case ctx.Err() != nil && !errors.Is(err, errStopping):
		return &Error{Code: CodeCanceled, Message: "the caller went away before the sandbox was ready", Err: err}
	case errors.Is(err, errStartupTimeout):
		return &Error{
			Code: CodeNoCapacity, Message: "no Pod became free before the startup timeout",
			Hint: "try again later, scale the pool up, or allow a longer startup timeout", RetryAfter: 30 * time.Second, Err: err,
		}
	case errors.Is(err, errStopping):
		return &Error{Code: CodeConflict, Message: "the sandbox was ended while it was starting", Err: err}
	case errors.Is(err, errPodGone):
		return &Error{Code: CodeStartFailed, Message: "the sandbox's Pod was deleted while it was starting", Hint: "try again", RetryAfter: time.Second, Err: err}
	default:
		m.log.Error("a claim failed", "error", err)
		return &Error{Code: CodeInternal, Message: "the claim failed inside the controller", Hint: "see the controller's log", Err: fmt.Errorf("claim: %w", err)}
	}
}
