package native

import (
	"context"
	"errors"
	"net/http"
	"time"

	"navix.sh/agentbox/controller/access"
)

type approvalItem struct {
	ID        string                `json:"id"`
	Principal access.Principal      `json:"principal"`
	SessionID string                `json:"sessionId,omitempty"`
	Operation string                `json:"operation"`
	OnceOnly  bool                  `json:"onceOnly"`
	Method    string                `json:"method"`
	Path      string                `json:"path"`
	Summary   string                `json:"summary"`
	CreatedAt time.Time             `json:"createdAt"`
	ExpiresAt time.Time             `json:"expiresAt"`
	Status    access.ApprovalStatus `json:"status"`
	Scope     access.ApprovalScope  `json:"scope,omitempty"`
	DecidedBy string                `json:"decidedBy,omitempty"`
	DecidedAt time.Time             `json:"decidedAt,omitzero"`
}

func approvalItemOf(a access.Approval) approvalItem {
	return approvalItem{
		ID: a.ID, Principal: a.Principal, SessionID: a.SessionID, Operation: a.Operation, OnceOnly: a.OnceOnly,
		Method: a.Method, Path: a.Path, Summary: a.Summary, CreatedAt: a.CreatedAt, ExpiresAt: a.ExpiresAt,
		Status: a.Status, Scope: a.Scope, DecidedBy: a.DecidedBy, DecidedAt: a.DecidedAt,
	}
}

// approvalRow is a row of either half of the list: one of them is set.
type approvalRow struct {
	*approvalItem
	grant *access.Grant
}

type approvalList struct {
	Pending     []approvalItem `json:"pending"`
	Grants      []access.Grant `json:"grants"`
	Total       int            `json:"total"`
	GrantsTotal int            `json:"grantsTotal"`
	Limit       int            `json:"limit"`
	Offset      int            `json:"offset"`
}

func (r approvalRow) pick(request func(approvalItem) string, grant func(access.Grant) string) string {
	if r.grant != nil {
		return grant(*r.grant)
	}
	return request(*r.approvalItem)
}

// listApprovals lists what waits for a decision and what stands approved. Requests that were decided or have expired
// are listed when `status` asks for them.
func listApprovals(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, c.own(access.KindApproval)); err != nil {
		return nil, err
	}
	if c.flag("watch") {
		return c.approvalRows().serve(c)
	}
	rows := c.approvalRows()
	match, err := rows.matcher(c)
	if err != nil {
		return nil, err
	}
	all, err := rows.rows(c.ctx)
	if err != nil {
		return nil, err
	}
	out := approvalList{Pending: []approvalItem{}, Grants: []access.Grant{}}
	for _, r := range all {
		switch {
		case !match(r):
		case r.grant != nil:
			out.Grants = append(out.Grants, *r.grant)
		default:
			out.Pending = append(out.Pending, *r.approvalItem)
		}
	}
	// Both halves are paged by the same limit and offset: a client reads one of them.
	requests := lister[approvalItem]{}.page(c, out.Pending)
	grants := lister[access.Grant]{}.page(c, out.Grants)
	out.Pending, out.Total, out.Grants, out.GrantsTotal = requests.Items, requests.Total, grants.Items, grants.Total
	out.Limit, out.Offset = requests.Limit, requests.Offset
	return ok(out), nil
}

func (c *call) approvalRows() lister[approvalRow] {
	status := c.query.Get("status")
	return lister[approvalRow]{
		kind: "approval",
		rows: func(ctx context.Context) ([]approvalRow, error) {
			requests, err := c.approvals.Requests(ctx, c.caller)
			if err != nil {
				return nil, err
			}
			grants, err := c.approvals.Grants(ctx, c.caller)
			if err != nil {
				return nil, err
			}
			var out []approvalRow
			for _, r := range requests {
				if status != "" || r.Status == access.ApprovalPending {
					item := approvalItemOf(r)
					out = append(out, approvalRow{approvalItem: &item})
				}
			}
			for i := range grants {
				if !c.flag("watch") {
					out = append(out, approvalRow{grant: &grants[i]})
				}
			}
			return out, nil
		},
		key: func(r approvalRow) string { return r.approvalItem.ID },
		filters: map[string]func(approvalRow) string{
			"id": func(r approvalRow) string {
				return r.pick(func(a approvalItem) string { return a.ID }, func(g access.Grant) string { return g.ID })
			},
			"operation": func(r approvalRow) string {
				return r.pick(func(a approvalItem) string { return a.Operation }, func(g access.Grant) string { return g.Operation })
			},
			// A half that has no such field is not narrowed by it.
			"status": func(r approvalRow) string {
				return r.pick(func(a approvalItem) string { return string(a.Status) }, func(access.Grant) string { return status })
			},
			"scope": func(r approvalRow) string {
				return r.pick(func(approvalItem) string { return c.query.Get("scope") }, func(g access.Grant) string { return string(g.Scope) })
			},
			"principal": func(r approvalRow) string {
				return r.pick(func(a approvalItem) string { return a.Principal.User }, func(g access.Grant) string { return g.Principal.User })
			},
		},
	}
}

// findApproval reads the request that the path names, and asks whether the caller may do v to it.
func (c *call) findApproval(v access.Verb) (access.Approval, error) {
	missing := notFound("approval", c.param("approvalId"), "list the approvals to see what waits")
	a, err := c.approvals.Request(c.ctx, c.param("approvalId"))
	if errors.Is(err, access.ErrNotFound) {
		return a, missing
	}
	if err != nil {
		return a, err
	}
	err = c.authorize(v, a.Object())
	if errors.Is(err, access.ErrNotFound) {
		err = missing
	}
	return a, err
}

func getApproval(c *call) (*response, error) {
	a, err := c.findApproval(access.VerbGet)
	if err != nil {
		return nil, err
	}
	return ok(approvalItemOf(a)), nil
}

type decisionBody struct {
	Decision string               `json:"decision"`
	Scope    access.ApprovalScope `json:"scope"`
}

// decideApproval approves or denies a request. Any key of the person whose agent asks decides, but for an agent's.
func decideApproval(c *call) (*response, error) {
	a, err := c.findApproval(access.VerbUpdate)
	if err != nil {
		return nil, err
	}
	body, err := decode[decisionBody](c)
	if err != nil {
		return nil, err
	}
	if body.Scope == "" {
		body.Scope = access.ScopeOnce
	}
	a, err = c.approvals.Decide(c.ctx, a.ID, c.caller.User, body.Decision == "approve", body.Scope)
	switch {
	case errors.Is(err, access.ErrDecided):
		return nil, conflict("read it to see how it stands; the agent may ask again", "approval %q is %s already", a.ID, a.Status)
	case errors.Is(err, access.ErrScope):
		return nil, badBody("use scope once", "%s", err)
	case err != nil:
		return nil, err
	}
	c.log.Info("an approval was decided", "requestId", c.id, "approval", a.ID, "status", a.Status, "scope", a.Scope, "by", c.caller.KeyID)
	return ok(approvalItemOf(a)), nil
}

func revokeGrant(c *call) (*response, error) {
	missing := notFound("grant", c.param("grantId"), "list the grants to see which there are")
	g, err := c.approvals.Grant(c.ctx, c.param("grantId"))
	if err == nil {
		err = c.authorize(access.VerbDelete, g.Object())
	}
	if errors.Is(err, access.ErrNotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	if c.dryRun() {
		return plan{}.response(), nil
	}
	if err := c.approvals.Withdraw(c.ctx, g.ID); err != nil {
		return nil, err
	}
	return &response{status: http.StatusNoContent}, nil
}
