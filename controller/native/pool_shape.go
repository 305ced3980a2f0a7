package native

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/controller/env"
)

// shape is what a pool's body comes to: the size of its Pods, and the quota that is charged for it.
type shape struct {
	resources corev1.ResourceRequirements
	// key names the shape and its scaling group.
	key string
	// quota is nil where nothing is charged.
	quota *catalogue.State
}

// poolShape holds a pool's body to how pools of the env state their size.
func (c *call) poolShape(body poolBody, sizing catalogue.PoolSizing) (shape, error) {
	quota := body.Labels[v1alpha1.LabelQuotaURL]
	const see = "the env's poolSizing says how its pools state their size"
	switch sizing {
	case catalogue.SizingBilled:
		if quota == "" {
			return shape{}, badBody("list the quotas for its name", "the env is billed: labels needs %s", v1alpha1.LabelQuotaURL)
		}
		if body.InstanceType == "" {
			return shape{}, badBody("list the instancetypes", "the env is billed: instanceType is needed")
		}
	case catalogue.SizingFreeForm:
		if quota != "" {
			return shape{}, badBody(see, "the env is free-form: leave the label %s out", v1alpha1.LabelQuotaURL)
		}
		if body.InstanceType != "" || body.Multiplier != nil {
			return shape{}, badBody(see, "the env is free-form: leave instanceType and multiplier out, and give inlineResources")
		}
	}
	s := shape{}
	if body.InstanceType != "" {
		t, known := c.Catalogue.Type(body.InstanceType)
		if !known {
			var names []string
			for _, t := range c.Catalogue.InstanceTypes {
				names = append(names, t.Name)
			}
			return shape{}, badBody(nearest("instance types", body.InstanceType, names), "instanceType: there is no instance type %q", body.InstanceType)
		}
		if m := body.Multiplier; m != nil && t.MaxMultiplier > 0 && *m > t.MaxMultiplier {
			return shape{}, badBody("add more replicas instead", "multiplier is %d, and %s allows at most %d", *m, t.Name, t.MaxMultiplier)
		}
		s.resources, _ = c.Catalogue.Size(t.Name, ptr.Deref(body.Multiplier, 1))
		if body.InlineResources != nil {
			if err := within(*body.InlineResources, s.resources); err != nil {
				return shape{}, err
			}
		}
	} else if body.Multiplier != nil {
		return shape{}, badBody("give both, or neither", "multiplier needs an instanceType")
	}
	if body.InlineResources != nil {
		s.resources = *body.InlineResources
	}
	var err error
	if s.key, err = env.ResourceKey(s.resources); err != nil {
		return shape{}, badBody(see, "%s", err)
	}
	if quota == "" {
		return s, nil
	}
	if body.InstanceType == "" {
		return shape{}, badBody("list the instancetypes", "quotas are counted in instance types: instanceType is needed beside the label %s", v1alpha1.LabelQuotaURL)
	}
	found, err := c.quota(quota)
	if err != nil {
		return shape{}, err
	}
	s.quota = found
	return s, nil
}

// quota finds one of the caller's quotas by name. Another's reads like one that does not exist.
func (c *call) quota(name string) (*catalogue.State, error) {
	all, err := c.ledger.Quotas(c.ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		o := access.Object{Kind: access.KindQuota, Team: all[i].Team, User: all[i].User, Name: all[i].Name}
		if access.Authorize(c.caller, access.VerbUse, o) != nil {
			continue
		}
		if all[i].Name == name {
			return &all[i], nil
		}
		names = append(names, all[i].Name)
	}
	return nil, badBody(nearest("quotas", name, names), "label %s: there is no quota %q", v1alpha1.LabelQuotaURL, name)
}

// within refuses what is larger than the envelope in any dimension, or asks for one that it does not have.
func within(asked, envelope corev1.ResourceRequirements) error {
	most := corev1.ResourceList{}
	for _, l := range []corev1.ResourceList{envelope.Requests, envelope.Limits} {
		for name, q := range l {
			if now, ok := most[name]; !ok || q.Cmp(now) > 0 {
				most[name] = q
			}
		}
	}
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", asked.Requests}, {"limits", asked.Limits}} {
		for _, name := range sortedNames(part.list) {
			q := part.list[name]
			limit, has := most[name]
			if !has {
				return badBody("leave it out, or choose another instance type", "inlineResources.%s.%s: the instance type has no %s", part.name, name, name)
			}
			if q.Cmp(limit) > 0 {
				return badBody("ask for less, or raise the multiplier", "inlineResources.%s.%s is %s, and the instance type times the multiplier is %s", part.name, name, q.String(), limit.String())
			}
		}
	}
	return nil
}

// checkResources refuses quantities that are negative, and requests above their limits.
func checkResources(r *corev1.ResourceRequirements) error {
	if r == nil {
		return nil
	}
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		for _, name := range sortedNames(part.list) {
			q := part.list[name]
			if q.Sign() < 0 {
				return badBody("give a positive quantity, such as 500m or 2Gi", "inlineResources.%s.%s is %s", part.name, name, q.String())
			}
			if name == "" || strings.ContainsAny(string(name), " \t\n") {
				return badBody("use cpu, memory, or a device such as nvidia.com/gpu", "inlineResources.%s: %q is no resource", part.name, name)
			}
		}
	}
	for name, q := range r.Requests {
		if limit, ok := r.Limits[name]; ok && q.Cmp(limit) > 0 {
			return badBody("raise the limit, or lower the request", "inlineResources: the %s request %s is above the limit %s", name, q.String(), limit.String())
		}
	}
	return nil
}

// checkBounds holds a pool's sizes to each other.
func checkBounds(b poolBody) error {
	if b.MinReplicas != nil && b.MaxReplicas != nil && *b.MinReplicas > *b.MaxReplicas {
		return badBody("swap or change them", "minReplicas %d is above maxReplicas %d", *b.MinReplicas, *b.MaxReplicas)
	}
	for _, f := range []struct {
		name  string
		value *int32
	}{{"replicas", b.Replicas}, {"minReplicas", b.MinReplicas}, {"maxReplicas", b.MaxReplicas}} {
		if f.value != nil && *f.value > maxReplicas {
			return badBody("split it over several pools", "%s is %d, and a pool has at most %d Pods", f.name, *f.value, maxReplicas)
		}
	}
	return nil
}

// maxReplicas bounds one pool: above it a typing mistake is likelier than a wish.
const maxReplicas = 10000
