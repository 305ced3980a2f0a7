package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/claim"
)

func sandboxObject(s claim.Sandbox, operation string) access.Object {
	return access.Object{
		Kind: access.KindSandbox, Namespace: s.Owner.Namespace, Name: s.ID,
		Team: s.Owner.Team, User: s.Owner.User, Operation: operation,
	}
}

// findSandbox reads the sandbox that the path names, and asks whether the caller may do v to it.
func (c *call) findSandbox(v access.Verb, operation string, finished bool) (claim.Sandbox, error) {
	id := c.param("sandboxId")
	missing := notFound("sandbox", id, "list the sandboxes to see what there is")
	s, err := c.Claims.Get(c.ctx, id, finished)
	if err != nil {
		var known *claim.Error
		if errors.As(err, &known) && known.Code == claim.CodeNotFound {
			return s, missing
		}
		return s, err
	}
	if err := c.authorize(v, sandboxObject(s, operation)); err != nil {
		if errors.Is(err, access.ErrNotFound) {
			return s, missing
		}
		return s, err
	}
	return s, nil
}

// sandboxes returns the sandboxes that the caller may see, newest first.
func (c *call) sandboxes(ctx context.Context, f claim.Filter) ([]claim.Sandbox, error) {
	if c.caller.Role != access.RoleAdmin {
		f.Owner = claim.Owner{Namespace: c.caller.Namespace, Team: c.caller.Team, User: c.caller.User}
	}
	all, err := c.Claims.List(ctx, f)
	if err != nil {
		return nil, err
	}
	out := all[:0:0]
	for _, s := range all {
		if access.Authorize(c.caller, access.VerbGet, sandboxObject(s, "")) == nil {
			out = append(out, s)
		}
	}
	return out, nil
}

func listSandboxes(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, c.own(access.KindSandbox)); err != nil {
		return nil, err
	}
	return lister[sandboxItem]{
		kind: "sandbox",
		rows: func(ctx context.Context) ([]sandboxItem, error) {
			all, err := c.sandboxes(ctx, claim.Filter{Finished: true})
			if err != nil {
				return nil, err
			}
			now := c.Now()
			if c.flag("watch") {
				now = time.Time{}
			}
			out := make([]sandboxItem, 0, len(all))
			for _, s := range all {
				out = append(out, sandboxItemOf(s, now))
			}
			return out, nil
		},
		key: func(r sandboxItem) string { return r.SandboxID },
		filters: map[string]func(sandboxItem) string{
			"sandboxId": func(r sandboxItem) string { return r.SandboxID },
			"status":    func(r sandboxItem) string { return string(r.Status) },
			"poolName":  func(r sandboxItem) string { return r.PoolName },
			"envName":   func(r sandboxItem) string { return r.EnvName },
			"team":      func(r sandboxItem) string { return r.Team },
			"user":      func(r sandboxItem) string { return r.User },
		},
		defaultLimit: 20,
	}.serve(c)
}

func getSandbox(c *call) (*response, error) {
	s, err := c.findSandbox(access.VerbGet, "", true)
	if err != nil {
		return nil, err
	}
	return c.sandboxResponse(s)
}

func (c *call) sandboxResponse(s claim.Sandbox) (*response, error) {
	item := sandboxItemOf(s, c.Now())
	if s.TerminatedAt.IsZero() {
		runtimes, err := c.runtimes(s)
		if err != nil {
			return nil, err
		}
		base := c.PublicURL(c.request)
		for _, r := range runtimes {
			if r.Port == 0 {
				continue
			}
			if item.Endpoints == nil {
				item.Endpoints = map[string]endpoint{}
			}
			item.Endpoints[r.Name] = endpoint{
				URL:    fmt.Sprintf("%s/agent-sandbox/api/data/sandboxes/%s/%d", base, s.ID, r.Port),
				LogDir: r.LogDir,
			}
		}
	}
	return okTagged(sandboxEnvelope{item}, sandboxTag(s)), nil
}

// sandboxTag is the version of what can be set on a sandbox: its timeout.
func sandboxTag(s claim.Sandbox) string { return etagOf(s.ID, s.Timeout, s.TimeoutMode) }

// runtimes are the daemons that a sandbox's pool declares; none when the pool is gone.
func (c *call) runtimes(s claim.Sandbox) ([]v1alpha1.Runtime, error) {
	var pool v1alpha1.SandboxPool
	err := c.Client.Get(c.ctx, client.ObjectKey{Namespace: s.Owner.Namespace, Name: s.Pool}, &pool)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pool.Spec.Runtimes, err
}

func createSandbox(c *call) (*response, error) {
	body, err := decode[createSandboxBody](c)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		sent bool
		hint string
	}{
		{"containerImages", len(body.ContainerImages) > 0, "use image: it replaces the sandbox container's"},
		{"labels", len(body.Labels) > 0, "use metadata"},
		{"annotations", len(body.Annotations) > 0, "use metadata"},
	} {
		if f.sent {
			return nil, notImplemented(f.hint, "%s is not implemented", f.name)
		}
	}
	startup, err := parseDuration("startupTimeout", body.StartupTimeout)
	if err != nil {
		return nil, err
	}
	idle, err := parseDuration("idleTimeout", body.IdleTimeout)
	if err != nil {
		return nil, err
	}
	var pool v1alpha1.SandboxPool
	missing := notFound("pool", body.PoolName, "list the pools of your envs to see what there is")
	err = c.read(c.ctx, c.caller.Namespace, body.PoolName, &pool)
	if apierrors.IsNotFound(err) || (err == nil && access.Authorize(c.caller, access.VerbUse, objectOf(access.KindPool, &pool)) != nil) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	o := c.own(access.KindSandbox)
	o.Operation = access.OpSandboxCreate
	if err := c.authorize(access.VerbCreate, o); err != nil {
		return nil, err
	}
	if c.dryRun() {
		return plan{before: struct{}{}, after: map[string]string{"poolName": pool.Name}}.response(), nil
	}
	if err := c.release(pool.Name); err != nil {
		return nil, err
	}
	request := claim.Request{
		Owner: claim.Owner{Namespace: c.caller.Namespace, Team: c.caller.Team, User: c.caller.User},
		Pool:  pool.Name, Image: body.Image, Metadata: body.Metadata,
	}
	if startup != nil {
		request.StartupTimeout = startup.Duration
	}
	if idle != nil {
		request.Timeout = idle.Duration
	}
	s, err := c.Claims.Create(c.ctx, request)
	if err != nil {
		return nil, err
	}
	resp, err := c.sandboxResponse(s)
	if err != nil {
		return nil, err
	}
	resp.status = http.StatusCreated
	return resp, nil
}

func deleteSandbox(c *call) (*response, error) {
	s, err := c.findSandbox(access.VerbDelete, access.OpSandboxDelete, false)
	if err != nil {
		return nil, err
	}
	if err := c.checkMatch("sandbox", s.ID, sandboxTag(s)); err != nil {
		return nil, err
	}
	if c.dryRun() {
		return plan{warnings: []string{"the sandbox ends, and what it holds is gone"}}.response(), nil
	}
	if err := c.release(s.ID); err != nil {
		return nil, err
	}
	if err := c.Claims.Kill(c.ctx, s.ID, claim.ReasonKilled); err != nil {
		return nil, err
	}
	return &response{status: http.StatusAccepted, body: sandboxResult{SandboxID: s.ID, Message: "sandbox has ended; its Pod is reset or replaced"}}, nil
}

type timeoutBody struct {
	Timeout string `json:"timeout"`
}

func setSandboxTimeout(c *call) (*response, error) {
	body, err := decode[timeoutBody](c)
	if err != nil {
		return nil, err
	}
	d, err := parseDuration("timeout", body.Timeout)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, badBody("give a time such as 30m", "timeout is empty")
	}
	s, err := c.findSandbox(access.VerbUpdate, access.OpSandboxUpdate, false)
	if err != nil {
		return nil, err
	}
	if err := c.checkMatch("sandbox", s.ID, sandboxTag(s)); err != nil {
		return nil, err
	}
	if c.dryRun() {
		return plan{before: timeoutBody{s.Timeout.String()}, after: timeoutBody{d.Duration.String()}}.response(), nil
	}
	if err := c.release(s.ID); err != nil {
		return nil, err
	}
	if _, err := c.Claims.SetTimeout(c.ctx, s.ID, d.Duration); err != nil {
		return nil, err
	}
	return &response{status: http.StatusNoContent}, nil
}

type statistics struct {
	Namespace   string               `json:"namespace,omitempty"`
	Team        string               `json:"team,omitempty"`
	User        string               `json:"user,omitempty"`
	Total       int                  `json:"total"`
	ByStatus    map[claim.Status]int `json:"byStatus"`
	ByNamespace map[string]int       `json:"byNamespace,omitempty"`
}

type statisticsEnvelope struct {
	Statistics statistics `json:"statistics"`
}

func countSandboxes(all []claim.Sandbox) statistics {
	s := statistics{Total: len(all), ByStatus: map[claim.Status]int{}}
	for _, one := range all {
		s.ByStatus[one.Status]++
	}
	return s
}

// getOwnStatistics counts the caller's own sandboxes, also an administrator's.
func getOwnStatistics(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, c.own(access.KindSandbox)); err != nil {
		return nil, err
	}
	owner := claim.Owner{Namespace: c.caller.Namespace, Team: c.caller.Team, User: c.caller.User}
	all, err := c.Claims.List(c.ctx, claim.Filter{Owner: owner, Finished: true})
	if err != nil {
		return nil, err
	}
	s := countSandboxes(all)
	s.Namespace, s.Team, s.User = owner.Namespace, owner.Team, owner.User
	return ok(statisticsEnvelope{s}), nil
}

func getAllStatistics(c *call) (*response, error) {
	if err := c.admin(access.VerbList); err != nil {
		return nil, err
	}
	all, err := c.Claims.List(c.ctx, claim.Filter{Finished: true})
	if err != nil {
		return nil, err
	}
	s := countSandboxes(all)
	s.ByNamespace = map[string]int{}
	for _, one := range all {
		s.ByNamespace[one.Owner.Namespace]++
	}
	return ok(statisticsEnvelope{s}), nil
}
