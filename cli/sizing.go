package cli

import (
	"context"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// quotaLabel is the label that names the quota of a billed pool.
const quotaLabel = "quota.scitix.ai/url"

// sizing reads which way of stating a size the env of a pool address takes; empty when unknown.
func (a *App) sizing(ctx context.Context, api *client.Client, addr registry.Address) string {
	if addr.Resource.Kind != "pool" || addr.Parent == nil || addr.Parent.Item == nil {
		return ""
	}
	env := registry.Address{Resource: addr.Parent, IDs: addr.IDs[:1]}
	value, _, err := a.getItem(ctx, api, env)
	if err != nil {
		return "" // the server checks it again
	}
	return output.Plain(output.Lookup(value, "poolSizing"))
}

// sizingNote tells below a table of pools how a new pool states its size.
func (a *App) sizingNote(ctx context.Context, api *client.Client, addr registry.Address) string {
	switch a.sizing(ctx, api, addr) {
	case "billed":
		return "pools of this env name an instanceType and a quota (abx instancetypes, abx quotas)"
	case "free-form":
		return "pools of this env state inlineResources and no instanceType"
	}
	return ""
}

// checkSizing refuses a pool whose size is stated in a way that its env does not take.
func (a *App) checkSizing(ctx context.Context, api *client.Client, w *write) error {
	quota := output.Lookup(w.body["labels"], `["`+quotaLabel+`"]`) != nil
	shape := w.body["instanceType"] != nil
	sizing := a.sizing(ctx, api, w.addr)
	wrong := ""
	switch {
	case sizing == "billed" && !quota:
		wrong = "needs the label " + quotaLabel + ", which names a quota"
	case sizing == "billed" && !shape:
		wrong = "needs an instanceType"
	case sizing == "free-form" && shape:
		wrong = "takes no instanceType; state inlineResources"
	case sizing == "free-form" && quota:
		wrong = "takes no label " + quotaLabel
	default:
		return nil
	}
	env := w.addr.IDs[0]
	return clierr.New(clierr.InvalidBody, "a pool of env %q, whose sizing is %s, %s", env, sizing, wrong).
		Hint("abx quotas", "abx instancetypes", "abx envs "+quote(env))
}
