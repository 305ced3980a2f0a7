package native

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
)

// groupBody is what an update of a scaling group takes, and what `editable` holds.
type groupBody struct {
	Enabled         bool                     `json:"enabled"`
	MinReplicas     int32                    `json:"minReplicas"`
	MaxReplicas     *int32                   `json:"maxReplicas,omitempty"`
	ScaleUpPolicy   v1alpha1.ScaleUpPolicy   `json:"scaleUpPolicy"`
	ScaleDownPolicy v1alpha1.ScaleDownPolicy `json:"scaleDownPolicy"`
}

type groupItem struct {
	Name string `json:"name"`
	groupBody
}

type groupEnvelope struct {
	Group    groupItem `json:"group"`
	Editable groupBody `json:"editable"`
}

type autoscalingEnvelope struct {
	Autoscaling autoscalingSpec `json:"autoscaling"`
}

type autoscalingSpec struct {
	Groups []groupItem `json:"groups"`
}

func groupItemOf(g v1alpha1.ScalingGroup) groupItem {
	return groupItem{Name: g.Name, groupBody: groupBody{
		Enabled: g.Enabled, MinReplicas: g.MinReplicas, MaxReplicas: g.MaxReplicas,
		ScaleUpPolicy: g.ScaleUpPolicy, ScaleDownPolicy: g.ScaleDownPolicy,
	}}
}

func groupItems(env *v1alpha1.SandboxEnv) []groupItem {
	out := []groupItem{}
	if env.Spec.Autoscaling != nil {
		for _, g := range env.Spec.Autoscaling.Groups {
			out = append(out, groupItemOf(g))
		}
	}
	return out
}

func findGroup(env *v1alpha1.SandboxEnv, name string) *v1alpha1.ScalingGroup {
	if env.Spec.Autoscaling == nil {
		return nil
	}
	for i := range env.Spec.Autoscaling.Groups {
		if env.Spec.Autoscaling.Groups[i].Name == name {
			return &env.Spec.Autoscaling.Groups[i]
		}
	}
	return nil
}

// findGroupMembers counts the members of a group on every cluster.
func findGroupMembers(env *v1alpha1.SandboxEnv, name string) int {
	n := 0
	for _, m := range catalogue.Members(env) {
		if m.Config.ScalingGroup == name {
			n++
		}
	}
	return n
}

func removeGroup(env *v1alpha1.SandboxEnv, name string) {
	if env.Spec.Autoscaling == nil {
		return
	}
	env.Spec.Autoscaling.Groups = slices.DeleteFunc(env.Spec.Autoscaling.Groups, func(g v1alpha1.ScalingGroup) bool { return g.Name == name })
}

// groupTag is the version of a scaling group's desired state.
func groupTag(env *v1alpha1.SandboxEnv, g *v1alpha1.ScalingGroup) string {
	return etagOf(env.UID, groupItemOf(*g))
}

func getAutoscaling(c *call) (*response, error) {
	env, err := c.findEnv(access.VerbGet, access.KindGroup)
	if err != nil {
		return nil, err
	}
	return ok(autoscalingEnvelope{autoscalingSpec{groupItems(env)}}), nil
}

func listGroups(c *call) (*response, error) {
	env, err := c.findEnv(access.VerbList, access.KindGroup)
	if err != nil {
		return nil, err
	}
	return lister[groupItem]{
		kind: "scaling-group",
		rows: func(ctx context.Context) ([]groupItem, error) {
			var now v1alpha1.SandboxEnv
			err := c.Client.Get(ctx, client.ObjectKeyFromObject(env), &now)
			if err != nil {
				return nil, client.IgnoreNotFound(err)
			}
			return groupItems(&now), nil
		},
		key: func(r groupItem) string { return r.Name },
		filters: map[string]func(groupItem) string{
			"name":    func(r groupItem) string { return r.Name },
			"enabled": func(r groupItem) string { return fmt.Sprint(r.Enabled) },
			"mode":    func(r groupItem) string { return string(r.ScaleUpPolicy.Mode) },
		},
		changes: c.watchObjects(&v1alpha1.SandboxEnvList{}, client.InNamespace(env.Namespace)),
	}.serve(c)
}

// findGroupIn reads the env and the group that the path names.
func (c *call) findGroupIn(v access.Verb) (*v1alpha1.SandboxEnv, *v1alpha1.ScalingGroup, error) {
	env, err := c.findEnv(v, access.KindGroup)
	if err != nil {
		return nil, nil, err
	}
	g := findGroup(env, c.param("groupName"))
	if g == nil {
		return nil, nil, notFound("scaling group", c.param("groupName"), "list the scaling groups of env "+env.Name+" to see what there is")
	}
	return env, g, nil
}

func getGroup(c *call) (*response, error) {
	env, g, err := c.findGroupIn(access.VerbGet)
	if err != nil {
		return nil, err
	}
	return groupResponse(env, g), nil
}

func groupResponse(env *v1alpha1.SandboxEnv, g *v1alpha1.ScalingGroup) *response {
	item := groupItemOf(*g)
	return okTagged(groupEnvelope{Group: item, Editable: item.groupBody}, groupTag(env, g))
}

func updateGroup(c *call) (*response, error) {
	body, err := decode[groupBody](c)
	if err != nil {
		return nil, err
	}
	if body.MaxReplicas != nil && body.MinReplicas > *body.MaxReplicas {
		return nil, badBody("swap or change them", "minReplicas %d is above maxReplicas %d", body.MinReplicas, *body.MaxReplicas)
	}
	if body.ScaleUpPolicy.Mode == v1alpha1.ScaleAggressive && body.MaxReplicas == nil {
		return nil, badBody("set maxReplicas, or use mode Default", "scaleUpPolicy.mode Aggressive needs maxReplicas")
	}
	var env *v1alpha1.SandboxEnv
	var g *v1alpha1.ScalingGroup
	var p plan
	err = retryConflicts(c.ctx, func() error {
		if env, g, err = c.findGroupIn(access.VerbUpdate); err != nil {
			return err
		}
		if err := c.checkMatch("scaling group", g.Name, groupTag(env, g)); err != nil {
			return err
		}
		name := g.Name
		p = plan{before: groupItemOf(*g).groupBody}
		*g = v1alpha1.ScalingGroup{
			Name: name, Enabled: body.Enabled, MinReplicas: body.MinReplicas, MaxReplicas: body.MaxReplicas,
			ScaleUpPolicy: body.ScaleUpPolicy, ScaleDownPolicy: body.ScaleDownPolicy,
		}
		// The API server fills in the defaults of what was left out.
		checked := env.DeepCopy()
		if err := c.Client.Update(c.ctx, checked, client.DryRunAll); err != nil {
			return err
		}
		if after := findGroup(checked, name); after != nil {
			p.after = groupItemOf(*after).groupBody
		}
		if c.dryRun() {
			return nil
		}
		if err := c.release(env.Name, name); err != nil {
			return err
		}
		if err := c.Client.Update(c.ctx, env); err != nil {
			return err
		}
		g = findGroup(env, name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if c.dryRun() {
		if body.Enabled {
			p.warnings = append(p.warnings, notActedOn)
		}
		return p.response(), nil
	}
	resp := groupResponse(env, g)
	if body.Enabled {
		resp.header = map[string][]string{"Warning": {`299 agentbox "` + notActedOn + `"`}}
	}
	return resp, nil
}

// notActedOn is what a person must know who switches a group on.
const notActedOn = "the policy is stored, and nothing acts on it yet: pools of the group keep their size"

// deleteGroup drops a group's settings. A group exists as long as a pool is in it, so one that is in use stays.
func deleteGroup(c *call) (*response, error) {
	var name string
	err := retryConflicts(c.ctx, func() error {
		env, g, err := c.findGroupIn(access.VerbDelete)
		if err != nil {
			return err
		}
		if err := c.checkMatch("scaling group", g.Name, groupTag(env, g)); err != nil {
			return err
		}
		name = g.Name
		if n := findGroupMembers(env, name); n > 0 {
			return conflict("delete its pools first, or update the group with enabled false",
				"scaling group %q is in use by %d of the env's pools", name, n)
		}
		removeGroup(env, name)
		if c.dryRun() {
			return c.Client.Update(c.ctx, env, client.DryRunAll)
		}
		if err := c.release(env.Name, name); err != nil {
			return err
		}
		return c.Client.Update(c.ctx, env)
	})
	if err != nil {
		return nil, err
	}
	if c.dryRun() {
		return plan{}.response(), nil
	}
	return ok(namedResult{Name: name, Message: "scaling group deleted"}), nil
}
