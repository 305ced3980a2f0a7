package native

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
)

func listPools(c *call) (*response, error) {
	env, err := c.findEnv(access.VerbList, access.KindPool)
	if err != nil {
		return nil, err
	}
	return lister[poolSummary]{
		kind: "pool",
		rows: func(ctx context.Context) ([]poolSummary, error) {
			return c.pools(ctx, env.Namespace, env.Name)
		},
		key: func(r poolSummary) string { return r.Name },
		filters: map[string]func(poolSummary) string{
			"name":         func(r poolSummary) string { return r.Name },
			"owningEnv":    func(r poolSummary) string { return r.OwningEnv },
			"scalingGroup": func(r poolSummary) string { return r.ScalingGroup },
			"phase":        func(r poolSummary) string { return string(r.Status.Phase) },
		},
		changes: c.watchEither(
			c.watchObjects(&v1alpha1.SandboxPoolList{}, client.InNamespace(env.Namespace)),
			c.watchObjects(&v1alpha1.SandboxEnvList{}, client.InNamespace(env.Namespace)),
		),
	}.serve(c)
}

// pools returns an env's member pools on this cluster, by name; none when the env is gone.
func (c *call) pools(ctx context.Context, namespace, name string) ([]poolSummary, error) {
	var env v1alpha1.SandboxEnv
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &env)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var list v1alpha1.SandboxPoolList
	if err := c.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	byName := map[string]*v1alpha1.SandboxPool{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	var out []poolSummary
	if segment := localSegment(&env, c.ClusterID); segment != nil {
		for i := range segment.Members {
			out = append(out, poolSummaryOf(&env, &segment.Members[i], byName[segment.Members[i].Name]))
		}
	}
	slices.SortFunc(out, func(a, b poolSummary) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// findPool reads the env and the member that the path names, and the pool object behind it, which follows the member
// and may not be there yet (nil).
func (c *call) findPool(v access.Verb) (*v1alpha1.SandboxEnv, *v1alpha1.Member, *v1alpha1.SandboxPool, error) {
	env, err := c.findEnv(v, access.KindPool)
	if err != nil {
		return nil, nil, nil, err
	}
	member := findMember(env, c.ClusterID, c.param("poolName"))
	if member == nil {
		return nil, nil, nil, notFound("pool", c.param("poolName"), "list the pools of env "+env.Name+" to see what there is")
	}
	var pool v1alpha1.SandboxPool
	err = c.Client.Get(c.ctx, client.ObjectKey{Namespace: env.Namespace, Name: member.Name}, &pool)
	if apierrors.IsNotFound(err) {
		return env, member, nil, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return env, member, &pool, nil
}

func findMember(env *v1alpha1.SandboxEnv, clusterID, name string) *v1alpha1.Member {
	segment := localSegment(env, clusterID)
	if segment == nil {
		return nil
	}
	for i := range segment.Members {
		if segment.Members[i].Name == name {
			return &segment.Members[i]
		}
	}
	return nil
}

func replicasOf(m *v1alpha1.Member) int32 {
	if m.Spec == nil {
		return 0
	}
	return m.Spec.Replicas
}

func poolSummaryOf(env *v1alpha1.SandboxEnv, m *v1alpha1.Member, pool *v1alpha1.SandboxPool) poolSummary {
	s := poolSummary{
		Name: m.Name, Namespace: env.Namespace, OwningEnv: env.Name,
		Team: env.Labels[v1alpha1.LabelTeam], User: env.Labels[v1alpha1.LabelUser],
		ScalingGroup: m.Config.ScalingGroup,
		Spec:         poolSpec{Replicas: replicasOf(m), TemplateName: env.Spec.TemplateRef.Name},
		Status:       poolStatus{Phase: v1alpha1.PoolPending},
	}
	if r := m.Config.InlineResources; r != nil {
		s.CPU, s.Memory = sizeOf(*r)
	}
	if pool == nil {
		if s.Spec.Replicas > 0 {
			s.Status.Phase = v1alpha1.PoolScalingUp
		}
		return s
	}
	s.CreatedAt = pool.CreationTimestamp
	s.TemplateVersion = pool.Annotations[v1alpha1.AnnotationTemplateVersion]
	s.Spec.PodCreationImagePolicy = pool.Spec.PodCreationImagePolicy
	s.Spec.DefaultStartupTimeout = durationText(pool.Spec.DefaultStartupTimeout)
	s.Spec.DefaultIdleTimeout = durationText(pool.Spec.DefaultIdleTimeout)
	if s.CPU == "" && s.Memory == "" && len(pool.Spec.Template.Spec.Containers) > 0 {
		s.CPU, s.Memory = sizeOf(pool.Spec.Template.Spec.Containers[0].Resources)
	}
	st := pool.Status
	s.Status = poolStatus{
		Phase: st.Phase, IdleReplicas: st.IdleReplicas, UnavailableIdleReplicas: st.UnavailableIdleReplicas,
		RunningReplicas: st.RunningReplicas, StartingReplicas: st.StartingReplicas, StoppingReplicas: st.StoppingReplicas,
		FailedReplicas: st.FailedReplicas, PendingRequests: st.PendingRequests, UpdateRevision: st.UpdateRevision,
		CurrentRevision: st.CurrentRevision, UpdatedReplicas: st.UpdatedReplicas, Autoscaling: st.Autoscaling,
		Conditions: st.Conditions,
	}
	if s.Status.Phase == "" {
		s.Status.Phase = v1alpha1.PoolPending
	}
	return s
}

// sizeOf is a container's CPU and memory: its limits, or its requests where it has no limits.
func sizeOf(r corev1.ResourceRequirements) (cpu, memory string) {
	pick := func(name corev1.ResourceName) string {
		for _, l := range []corev1.ResourceList{r.Limits, r.Requests} {
			if q, ok := l[name]; ok {
				return q.String()
			}
		}
		return ""
	}
	return pick(corev1.ResourceCPU), pick(corev1.ResourceMemory)
}

func getPool(c *call) (*response, error) {
	env, member, pool, err := c.findPool(access.VerbGet)
	if err != nil {
		return nil, err
	}
	return c.poolResponse(env, member, pool)
}

func (c *call) poolResponse(env *v1alpha1.SandboxEnv, m *v1alpha1.Member, pool *v1alpha1.SandboxPool) (*response, error) {
	d := poolDetail{poolSummary: poolSummaryOf(env, m, pool), Generation: env.Generation}
	d.Status.ObservedGeneration = env.Status.ObservedGeneration
	if o := env.Spec.Overrides; o != nil && o.Image != "" {
		d.Overrides = &poolOverrides{Image: o.Image}
	}
	manifest := &v1alpha1.SandboxPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxPool"},
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: env.Namespace, Labels: m.Config.Labels, Annotations: m.Config.Annotations},
	}
	switch {
	case pool != nil:
		manifest.Labels, manifest.Annotations, manifest.Spec = pool.Labels, pool.Annotations, pool.Spec
	case m.Spec != nil:
		manifest.Spec = *m.Spec
	}
	raw, err := yaml.Marshal(manifestOf(manifest))
	if err != nil {
		return nil, err
	}
	d.SpecYAML = string(raw)
	return okTagged(poolEnvelope{Template: d, Editable: c.editablePool(env, m)}, c.poolTag(env, m)), nil
}

// manifestOf is an object as a person would write it: without status and what the API server added.
func manifestOf(o any) any {
	m, _ := asJSON(o).(map[string]any)
	delete(m, "status")
	if meta, ok := m["metadata"].(map[string]any); ok {
		for _, key := range []string{"managedFields", "creationTimestamp", "uid", "generation", "selfLink"} {
			delete(meta, key)
		}
	}
	return m
}

// editablePool is what an update of a pool takes to leave everything as it is. While the group scales by itself, the
// size is the autoscaler's.
func (c *call) editablePool(env *v1alpha1.SandboxEnv, m *v1alpha1.Member) poolBody {
	b := poolBody{
		InstanceType: m.Config.InstanceType, Multiplier: m.Config.Multiplier, InlineResources: m.Config.InlineResources,
		MinReplicas: m.Config.MinReplicas, MaxReplicas: m.Config.MaxReplicas,
		Labels: m.Config.Labels, Annotations: m.Config.Annotations, UpdateStrategy: m.Config.UpdateStrategy,
	}
	if c.impliedSize(m) {
		b.InlineResources = nil
	}
	if g := findGroup(env, m.Config.ScalingGroup); g == nil || !g.Enabled {
		replicas := replicasOf(m)
		b.Replicas = &replicas
	}
	return b
}

// impliedSize reports whether a member's resources are just what its instance type is.
func (c *call) impliedSize(m *v1alpha1.Member) bool {
	size, known := c.Catalogue.Size(m.Config.InstanceType, ptr.Deref(m.Config.Multiplier, 1))
	return known && m.Config.InlineResources != nil && equality.Semantic.DeepEqual(size, *m.Config.InlineResources)
}

// poolTag is the version of a pool's desired state.
func (c *call) poolTag(env *v1alpha1.SandboxEnv, m *v1alpha1.Member) string {
	return etagOf(env.UID, m.Name, c.editablePool(env, m))
}

// watchEither signals when any of several sources does.
func (h *Handler) watchEither(sources ...changeSource) changeSource {
	return func(ctx context.Context) (<-chan struct{}, error) {
		ctx, cancel := context.WithCancel(ctx)
		out := make(chan struct{}, 1)
		ended := make(chan struct{}, len(sources))
		for _, source := range sources {
			in, err := source(ctx)
			if err != nil {
				cancel()
				return nil, err
			}
			go func() {
				for range in {
					select {
					case out <- struct{}{}:
					default: // a signal is waiting already
					}
				}
				ended <- struct{}{}
			}()
		}
		go func() {
			// When one source ends, the others are ended too, so that the client connects again to all of them.
			<-ended
			cancel()
			for range len(sources) - 1 {
				<-ended
			}
			close(out)
		}()
		return out, nil
	}
}
