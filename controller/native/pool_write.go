package native

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/controller/claim"
)

// createPool adds a member to an env. The env is the one place where member pools are written down; its reconciler
// makes the pool object.
func createPool(c *call) (*response, error) {
	body, err := decode[poolBody](c)
	if err != nil {
		return nil, err
	}
	if err := checkPoolBody(body); err != nil {
		return nil, err
	}
	var env *v1alpha1.SandboxEnv
	var member v1alpha1.Member
	var p plan
	done, err := c.changePool(func() (change poolChange, err error) {
		if env, err = c.findEnv(access.VerbCreate, access.KindPool); err != nil {
			return change, err
		}
		if env.DeletionTimestamp != nil {
			return change, conflict("wait until it is gone", "env %q is being deleted", env.Name)
		}
		template, err := c.template(c.ctx, env.Spec.TemplateRef.Name)
		if err != nil {
			return change, err
		}
		if template == nil {
			return change, notFound("template", env.Spec.TemplateRef.Name, "the env's template is gone: ask an administrator")
		}
		s, err := c.poolShape(body, c.sizingOf(template))
		if err != nil {
			return change, err
		}
		quotaID := ""
		if s.quota != nil {
			quotaID = s.quota.ID
		}
		name, err := poolName(env.Name, s.key, quotaID)
		if err != nil {
			return change, err
		}
		if taken, err := c.nameTaken(env, name); err != nil || taken {
			if taken {
				err = conflict("change that pool's replicas, or give another shape", "a pool of this shape exists already: %q", name)
			}
			return change, err
		}
		replicas, warnings, err := firstReplicas(env, s.key, body)
		if err != nil {
			return change, err
		}
		member = newMember(name, s, body, replicas)
		addMember(env, c.ClusterID, member)
		p = plan{before: struct{}{}, after: planned(name, c.editablePool(env, &member)), warnings: warnings}
		return poolChange{env: env, after: member}, nil
	})
	if err != nil {
		return nil, err
	}
	if !done {
		return p.response(), nil
	}
	resp, err := c.poolResponse(env, &member, nil)
	if err != nil {
		return nil, err
	}
	resp.status = http.StatusAccepted
	return resp, nil
}

func checkPoolBody(body poolBody) error {
	for _, err := range []error{
		checkResources(body.InlineResources), checkBounds(body),
		checkUserKeys("labels", body.Labels, true), checkUserKeys("annotations", body.Annotations, false),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// planned is a pool that is to be, with the name that it would get.
func planned(name string, b poolBody) any {
	m, _ := asJSON(b).(map[string]any)
	m["name"] = name
	return m
}

// nameTaken reports whether a pool's derived name is in use: by a member of this env on any cluster, or by a pool in
// the namespace that is another env's.
func (c *call) nameTaken(env *v1alpha1.SandboxEnv, name string) (bool, error) {
	if findMember(env, c.ClusterID, name) != nil {
		return true, nil
	}
	var pool v1alpha1.SandboxPool
	err := c.Client.Get(c.ctx, client.ObjectKey{Namespace: env.Namespace, Name: name}, &pool)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// firstReplicas is the size of a new pool. In a group that scales by itself the group's floor decides, and its ceiling
// must have room.
func firstReplicas(env *v1alpha1.SandboxEnv, group string, body poolBody) (int32, []string, error) {
	g := findGroup(env, group)
	if g == nil || !g.Enabled {
		if body.Replicas == nil || *body.Replicas == 0 {
			return 0, []string{"the pool has no replicas yet, so nothing can be claimed from it"}, nil
		}
		return *body.Replicas, nil, nil
	}
	total := groupTotal(env, group)
	if body.Replicas != nil {
		return 0, nil, badBody("leave replicas out; minReplicas and maxReplicas of the pool and its group bound it",
			"replicas: scaling group %s scales by itself", group)
	}
	replicas := max(g.MinReplicas-total, 0)
	if g.MaxReplicas != nil && total+replicas > *g.MaxReplicas {
		return 0, nil, badBody("raise the group's maxReplicas first", "scaling group %s has %d replicas and at most %d", group, total, *g.MaxReplicas)
	}
	return replicas, nil, nil
}

func groupTotal(env *v1alpha1.SandboxEnv, group string) int32 {
	var total int32
	for _, m := range catalogue.Members(env) {
		if m.Config.ScalingGroup == group {
			total += replicasOf(&m)
		}
	}
	return total
}

func newMember(name string, s shape, body poolBody, replicas int32) v1alpha1.Member {
	resources := s.resources
	return v1alpha1.Member{
		Name: name,
		Config: v1alpha1.MemberConfig{
			Labels: body.Labels, Annotations: body.Annotations,
			InstanceType: body.InstanceType, Multiplier: body.Multiplier, InlineResources: &resources,
			ScalingGroup: s.key, MinReplicas: body.MinReplicas, MaxReplicas: body.MaxReplicas,
			UpdateStrategy: body.UpdateStrategy,
		},
		Spec: &v1alpha1.SandboxPoolSpec{Replicas: replicas},
	}
}

// addMember puts a member into an env, with a scaling group for its shape, switched off, where it has none.
func addMember(env *v1alpha1.SandboxEnv, clusterID string, m v1alpha1.Member) {
	segment := localSegment(env, clusterID)
	if segment == nil {
		env.Spec.Clusters = append(env.Spec.Clusters, v1alpha1.ClusterSegment{ClusterID: clusterID})
		segment = &env.Spec.Clusters[len(env.Spec.Clusters)-1]
	}
	segment.Members = append(segment.Members, m)
	if findGroup(env, m.Config.ScalingGroup) != nil {
		return
	}
	if env.Spec.Autoscaling == nil {
		env.Spec.Autoscaling = &v1alpha1.EnvAutoscaling{}
	}
	env.Spec.Autoscaling.Groups = append(env.Spec.Autoscaling.Groups, v1alpha1.ScalingGroup{Name: m.Config.ScalingGroup})
}

func updatePool(c *call) (*response, error) {
	body, err := decode[poolBody](c)
	if err != nil {
		return nil, err
	}
	if err := checkPoolBody(body); err != nil {
		return nil, err
	}
	var env *v1alpha1.SandboxEnv
	var member *v1alpha1.Member
	var pool *v1alpha1.SandboxPool
	var p plan
	done, err := c.changePool(func() (change poolChange, err error) {
		if env, member, pool, err = c.findPool(access.VerbUpdate); err != nil {
			return change, err
		}
		if err := c.checkMatch("pool", member.Name, c.poolTag(env, member)); err != nil {
			return change, err
		}
		if err := c.checkFixed(c.fixedPoolFields(env, member, body)); err != nil {
			return change, err
		}
		before := *member.DeepCopy()
		p = plan{before: c.editablePool(env, member)}
		if err := c.resize(env, member, body); err != nil {
			return change, err
		}
		member.Config.MinReplicas, member.Config.MaxReplicas = body.MinReplicas, body.MaxReplicas
		member.Config.UpdateStrategy = body.UpdateStrategy
		p.after = c.editablePool(env, member)
		return poolChange{env: env, before: &before, after: *member}, nil
	})
	if err != nil {
		return nil, err
	}
	if !done {
		return p.response(), nil
	}
	return c.poolResponse(env, findMember(env, c.ClusterID, c.param("poolName")), pool)
}

// fixedPoolFields are the parts of a pool that are its shape. Resources that only repeat the instance type may be left
// out, as a create may.
func (c *call) fixedPoolFields(env *v1alpha1.SandboxEnv, m *v1alpha1.Member, sent poolBody) []fixedField {
	now := c.editablePool(env, m)
	if sent.InlineResources != nil && now.InlineResources == nil {
		now.InlineResources = m.Config.InlineResources
	}
	return []fixedField{
		{"instanceType", now.InstanceType, sent.InstanceType},
		{"multiplier", now.Multiplier, sent.Multiplier},
		{"inlineResources", now.InlineResources, sent.InlineResources},
		{"labels", now.Labels, sent.Labels},
		{"annotations", now.Annotations, sent.Annotations},
	}
}

// resize applies replicas, which an update may leave out and a group that scales by itself refuses.
func (c *call) resize(env *v1alpha1.SandboxEnv, m *v1alpha1.Member, body poolBody) error {
	now := replicasOf(m)
	if body.Replicas == nil || *body.Replicas == now {
		return nil
	}
	if g := findGroup(env, m.Config.ScalingGroup); g != nil && g.Enabled {
		return badBody("change minReplicas and maxReplicas, or switch the group off first",
			"replicas: scaling group %s scales by itself; it is %d now", g.Name, now)
	}
	if m.Spec == nil {
		m.Spec = &v1alpha1.SandboxPoolSpec{}
	}
	m.Spec.Replicas = *body.Replicas
	return nil
}

func deletePool(c *call) (*response, error) {
	var p plan
	var name, namespace string
	done, err := c.changePool(func() (poolChange, error) {
		env, member, _, err := c.findPool(access.VerbDelete)
		if err != nil {
			return poolChange{}, err
		}
		if err := c.checkMatch("pool", member.Name, c.poolTag(env, member)); err != nil {
			return poolChange{}, err
		}
		before := *member.DeepCopy()
		name, namespace = before.Name, env.Namespace
		removeMember(env, c.ClusterID, name)
		p = plan{}
		if findGroupMembers(env, before.Config.ScalingGroup) == 0 {
			p.cascade = append(p.cascade, reference{"scaling-group", before.Config.ScalingGroup})
		}
		return poolChange{env: env, before: &before, after: v1alpha1.Member{Name: name}}, nil
	})
	if err != nil {
		return nil, err
	}
	if !done {
		return c.withSandboxes(p, claim.Filter{Pool: name, Env: c.param("name"), Owner: claim.Owner{Namespace: namespace}})
	}
	return &response{status: http.StatusAccepted, body: namedResult{Name: name, Message: "pool is being deleted, and its Pods with it"}}, nil
}

// removeMember takes a member out of an env, and its scaling group with it when it was the last one.
func removeMember(env *v1alpha1.SandboxEnv, clusterID, name string) {
	segment := localSegment(env, clusterID)
	for i := range segment.Members {
		if segment.Members[i].Name != name {
			continue
		}
		group := segment.Members[i].Config.ScalingGroup
		segment.Members = append(segment.Members[:i:i], segment.Members[i+1:]...)
		if findGroupMembers(env, group) == 0 {
			removeGroup(env, group)
		}
		return
	}
}

// poolChange is an env with one member changed: what the member was (nil for a new one) and is to be.
type poolChange struct {
	env    *v1alpha1.SandboxEnv
	before *v1alpha1.Member
	after  v1alpha1.Member
}

// changePool writes a change of a member, charging its quota first. make is called again whenever another writer came
// between. The bool is false when nothing was written because the call is a dry run.
func (c *call) changePool(make func() (poolChange, error)) (bool, error) {
	var last poolChange
	charged := map[string]bool{}
	err := retryConflicts(c.ctx, func() error {
		change, err := make()
		if err != nil {
			return err
		}
		last = change
		quota, instanceType, more := growth(change)
		if c.dryRun() {
			if quota != "" {
				if err := c.ledger.Check(c.ctx, quota, instanceType, more); err != nil {
					return err
				}
			}
			return c.Client.Update(c.ctx, change.env, client.DryRunAll)
		}
		if err := c.Client.Update(c.ctx, change.env.DeepCopy(), client.DryRunAll); err != nil {
			return err
		}
		if err := c.release(change.env.Name, change.after.Name); err != nil {
			return err
		}
		if quota != "" {
			charged[quota] = true
			if err := c.ledger.Reserve(c.ctx, quota, c.write, instanceType, more); err != nil {
				return err
			}
		}
		return c.Client.Update(c.ctx, change.env)
	})
	if last.env != nil && !c.dryRun() {
		for _, m := range []*v1alpha1.Member{last.before, &last.after} {
			if m == nil {
				continue
			}
			if quota, _, _, held := catalogue.Units(*m); held {
				charged[quota] = true
			}
		}
		for quota := range charged {
			c.settle(quota, last.env.Namespace, last.env.Name, last.after.Name)
		}
	}
	if err != nil {
		return false, err
	}
	return !c.dryRun(), nil
}

// growth is what a change needs more of a quota; an empty name when it needs nothing.
func growth(change poolChange) (quota, instanceType string, more int64) {
	quota, instanceType, units, ok := catalogue.Units(change.after)
	if !ok {
		return "", "", 0
	}
	if change.before != nil {
		_, _, had, _ := catalogue.Units(*change.before)
		units -= had
	}
	if units <= 0 {
		return "", "", 0
	}
	return quota, instanceType, units
}

// settle makes what a pool holds of its quota what the pool is now, also when the client has gone. When that fails, the
// comparison of quotas with pools does it later.
func (c *call) settle(quota, namespace, env, pool string) {
	ctx := context.WithoutCancel(c.ctx)
	err := c.ledger.Settle(ctx, quota, c.write, catalogue.Holder(namespace, pool), func(ctx context.Context) (catalogue.Holding, error) {
		var now v1alpha1.SandboxEnv
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: env}, &now)
		if err != nil {
			return catalogue.Holding{}, client.IgnoreNotFound(err)
		}
		for _, m := range catalogue.Members(&now) {
			if m.Name != pool {
				continue
			}
			if name, instanceType, units, ok := catalogue.Units(m); ok && name == quota {
				return catalogue.Holding{InstanceType: instanceType, Units: units}, nil
			}
		}
		return catalogue.Holding{}, nil
	})
	if err != nil {
		c.log.Warn("a quota is not settled yet; it will be compared with the pools", "quota", quota, "pool", pool, "error", err)
	}
}
