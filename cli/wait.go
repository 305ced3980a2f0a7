package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

const (
	// waitDefault is how long --wait waits without --timeout.
	waitDefault = 10 * time.Minute
	pollEvery   = time.Second
)

// waitContext bounds a write that waits.
func (s *session) waitContext(ctx context.Context, wait bool) (context.Context, context.CancelFunc) {
	if !wait {
		return context.WithCancel(ctx)
	}
	limit := s.timeout
	if limit == 0 {
		limit = waitDefault
	}
	return context.WithTimeout(ctx, limit)
}

// streamContext bounds what goes on by itself, such as a watch, when the command line says how long. AGENTBOX_TIMEOUT stays the
// limit of single requests: it is set once, for all commands.
func (s *session) streamContext(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	if !cmd.Flags().Changed("timeout") {
		return context.WithCancel(cmd.Context())
	}
	return context.WithTimeout(cmd.Context(), s.timeout)
}

// ended is the error of a stream whose context is done.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return clierr.New(clierr.Timeout, "the time that --timeout gives is over").Because(ctx.Err()).Hint("without --timeout it goes on until it is interrupted")
	}
	return clierr.New(clierr.Interrupted, "interrupted").Because(ctx.Err())
}

// deliver sends the request. With --wait it stays until a person has decided when the
// write needs an approval, and then sends the very same bytes again, because the
// approval is for those.
func (a *App) deliver(ctx context.Context, s *session, api *client.Client, w *write, request client.Request) (*client.Response, error) {
	answer, err := api.Do(ctx, request)
	e := (*clierr.Error)(nil)
	if !errors.As(err, &e) || e.Approval == nil || e.Approval.ID == "" {
		return answer, a.explain(err, w)
	}
	if e.Approval.URL == "" {
		e.Approval.URL = a.approvalPage(s, e.Approval.ID)
	}
	if !w.wait {
		return nil, a.explain(err, w)
	}
	if !a.json {
		e.Approval.Print(a.Err)
		fmt.Fprintln(a.Err, "hint: "+decideHint(e.Approval))
	}
	if err := a.awaitDecision(ctx, api, e.Approval); err != nil {
		waited := clierr.From(err)
		if a.json { // as text it was printed when the wait began
			waited.Approval = e.Approval
		}
		return nil, waited
	}
	answer, err = api.Do(ctx, request)
	return answer, a.explain(err, w)
}

// approvalPage is the console page of an approval; empty when there is none.
func (a *App) approvalPage(s *session, id string) string {
	addr, bad := a.Index.ParseAddress([]string{"approvals", id})
	if bad != nil {
		return ""
	}
	return s.page(addr)
}

func decideHint(approval *clierr.Approval) string {
	return "a person decides with a key of their own: " + approval.Command()
}

// awaitDecision polls an approval until it is decided. Until then the write is held: nothing has happened.
func (a *App) awaitDecision(ctx context.Context, api *client.Client, approval *clierr.Approval) error {
	path := "/approvals/" + approval.ID
	held := waiting{what: "approval " + approval.ID, state: "the write is held and was not carried out", hints: []string{
		decideHint(approval), "then run the same command again, or wait longer: --timeout 30m"}}
	return a.poll(ctx, held, func() (string, bool, error) {
		answer, err := api.Do(ctx, client.Request{Method: http.MethodGet, Path: path})
		if err != nil {
			return "", false, err
		}
		var state struct {
			Status string `json:"status"`
		}
		if err := decodeInto(answer.Body, &state); err != nil {
			return "", false, err
		}
		switch state.Status {
		case "approved":
			return state.Status, true, nil
		case "denied":
			return "", false, clierr.New(clierr.ApprovalDenied, "a person refused it (approval %s)", approval.ID).Hint("ask them why before trying again")
		case "expired":
			return "", false, clierr.New(clierr.ApprovalRequired, "nobody decided in time (approval %s)", approval.ID).Hint("run the command again to ask again")
		}
		return "waiting for a person", false, nil
	})
}

// await waits until the effect of the write can be seen.
func (a *App) await(ctx context.Context, api *client.Client, w *write, answer *client.Response) error {
	at := w.addr
	if w.verb == "create" {
		value, err := output.Decode(answer.Body)
		if err != nil {
			return nil
		}
		name := w.createdName(value)
		if name == "" {
			return nil
		}
		at.IDs = append(append([]string(nil), at.IDs...), name)
	}
	if at.Resource.Item == nil {
		return nil // the answer was the effect
	}
	gone := w.verb == "delete"
	sent := waiting{what: at.String(), state: "the write was sent", hints: []string{"waiting longer: --timeout 30m"}}
	return a.poll(ctx, sent, func() (string, bool, error) {
		value, _, err := a.getItem(ctx, api, at)
		var e *clierr.Error
		if errors.As(err, &e) && e.Code == clierr.NotFound {
			// What is not there yet is still to come.
			return "not there", gone, nil
		}
		if err != nil || gone {
			return "still there", false, err
		}
		progress, done := settled(at.Resource, value)
		return progress, done, nil
	})
}

// settled reports whether an object has become what was asked for, and how far it is. Kinds without a size are settled as
// soon as they can be read; one with a size that does not say how it stands is not.
func settled(r *registry.Resource, value any) (string, bool) {
	prefix, desired := "status.", ""
	switch r.Kind {
	case "pool":
		desired = "spec.replicas"
	case "env":
		desired = "status.desiredReplicas"
	default:
		return "", true
	}
	number := func(path string) int {
		n, _ := strconv.Atoi(output.Plain(output.Lookup(value, path)))
		return n
	}
	for _, path := range []string{desired, prefix + "idleReplicas"} {
		if output.Lookup(value, path) == nil {
			return "the server does not say " + path, false
		}
	}
	want, idle, running := number(desired), number(prefix+"idleReplicas"), number(prefix+"runningReplicas")
	busy := number(prefix+"startingReplicas") + number(prefix+"stoppingReplicas")
	updated, counted := output.Lookup(value, prefix+"updatedReplicas"), true
	if updated != nil {
		counted = number(prefix+"updatedReplicas") >= idle
	}
	phase := output.Plain(output.Lookup(value, prefix+"phase"))
	progress := fmt.Sprintf("%d idle and %d running of %d", idle, running, want)
	if phase != "" {
		progress += ", " + phase
	}
	if output.Lookup(value, "generation") != nil && number(prefix+"observedGeneration") != number("generation") {
		return progress + ", before the change", false
	}
	if rollingOut(value) {
		return progress + ", rolling out", false
	}
	still := phase == "" || phase == "Ready" || phase == "Pending" && want == 0
	return progress, idle+running >= want && busy == 0 && counted && still
}

// rollingOut reports whether an env says that Pods of an earlier revision are left.
func rollingOut(value any) bool {
	conditions, _ := output.Lookup(value, "status.conditions").([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		return output.Lookup(c, "type") == "TemplateConsistent" && output.Lookup(c, "reason") == "RolloutInProgress"
	})
}

// waiting is what a poll is for, and what holds when it ends too early.
type waiting struct {
	what, state string
	hints       []string // when time runs out
}

// poll looks again and again until look says that it is done, showing progress to a person.
func (a *App) poll(ctx context.Context, w waiting, look func() (string, bool, error)) error {
	progress := a.progress()
	defer progress.stop()
	last := ""
	for {
		state, done, err := look()
		if err == nil && done {
			return nil
		}
		if err != nil {
			if ctx.Err() == nil {
				return err
			}
		} else {
			last = state
			progress.show(w.what + ": " + state)
		}
		if ctx.Err() == nil && a.Pause(ctx, pollEvery) == nil {
			continue
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return clierr.New(clierr.Timeout, "the time ran out while waiting for %s; last seen: %s; %s", w.what, last, w.state).Because(ctx.Err()).Hint(w.hints...)
		}
		return clierr.New(clierr.Interrupted, "interrupted while waiting for %s; %s", w.what, w.state).Because(ctx.Err())
	}
}
