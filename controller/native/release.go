package native

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"navix.sh/agentbox/controller/access"
)

// approvalDetail is ApprovalDetail of the document.
type approvalDetail struct {
	ApprovalID string    `json:"approvalId"`
	Operation  string    `json:"operation"`
	Summary    string    `json:"summary"`
	OnceOnly   bool      `json:"onceOnly"`
	PollURL    string    `json:"pollUrl"`
	ExpiresAt  time.Time `json:"expiresAt"`
}

// release lets a write go ahead. A call that needs a person's approval is held here, after everything else about it
// was found to be in order, so that nobody is asked to approve what would be refused anyway. A dry run changes nothing
// and is never held.
func (c *call) release(names ...string) error {
	if c.held == nil || c.released || c.dryRun() {
		return nil
	}
	op := c.held.Operation
	a, err := c.approvals.Spend(c.ctx, c.caller, op, access.Held{
		Method: c.op.method, Path: c.concretePath(), Body: c.body,
		Session: c.request.Header.Get("X-AgentBox-Session-Id"),
		Summary: op.Act + " (" + strings.Join(names, ", ") + ")",
	})
	if errors.Is(err, access.ErrDenied) {
		return refuse(http.StatusForbidden, codeForbidden, "do not repeat it; ask the person who decided", "%s", err)
	}
	if err != nil {
		return err
	}
	if a == nil {
		c.released = true
		return nil
	}
	e := refuse(http.StatusPreconditionRequired, codeApproval,
		"ask "+c.caller.User+" to run `abx approve approvals "+a.ID+"` with a key of their own, then repeat this call unchanged",
		"%s", c.held.Error())
	e.detail = approvalDetail{
		ApprovalID: a.ID, Operation: a.Operation, Summary: a.Summary, OnceOnly: a.OnceOnly,
		PollURL: c.apiBase + "/approvals/" + a.ID, ExpiresAt: a.ExpiresAt,
	}
	return e
}

// concretePath is the path of this call below the API's base: the same whichever form it came by.
func (c *call) concretePath() string {
	return strings.TrimPrefix(c.request.URL.EscapedPath(), c.apiBase)
}
