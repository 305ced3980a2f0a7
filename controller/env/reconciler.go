package env

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/pool"
)

// reconciler brings envs to their wanted state. It is the only writer of the specs of their pools.
type reconciler struct {
	client  client.Client
	options Options
	events  record.EventRecorder
}

// Reconcile renders the members, brings the pools in line, and publishes the status once.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var e v1alpha1.SandboxEnv
	if err := r.client.Get(ctx, req.NamespacedName, &e); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	p := &pass{reconciler: r, env: &e, pools: map[string]*v1alpha1.SandboxPool{}}
	err := p.run(ctx)
	if !p.stale {
		if statusErr := p.publish(ctx, err == nil); err == nil {
			err = statusErr
		}
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: settleTime}, nil
	}
	return ctrl.Result{}, err
}

// pass is one Reconcile of one env.
type pass struct {
	*reconciler
	env      *v1alpha1.SandboxEnv
	template *v1alpha1.SandboxTemplate
	pools    map[string]*v1alpha1.SandboxPool // controlled by the env, by name
	problems []problem
	broken   map[string]bool // members that could not be rendered
	stale    bool            // the env was written: its event starts the next pass, with the status
}

func (p *pass) fail(reason, format string, args ...any) {
	p.problems = append(p.problems, problem{reason: reason, message: fmt.Sprintf(format, args...)})
}

func (p *pass) run(ctx context.Context) error {
	if err := p.findPools(ctx); err != nil {
		return err
	}
	if p.env.DeletionTimestamp != nil {
		// Its pools go with it, by their owner reference.
		p.fail(reasonTerminating, "the environment is being deleted; pools that are left: %d", len(p.pools))
		return nil
	}
	if p.env.Spec.Mode == v1alpha1.ModeOnDemandJob {
		p.fail(reasonModeNotServed, "mode OnDemandJob is not implemented; use WarmPool")
		return nil
	}
	var template v1alpha1.SandboxTemplate
	err := p.client.Get(ctx, client.ObjectKey{Name: p.env.Spec.TemplateRef.Name}, &template)
	switch {
	case apierrors.IsNotFound(err):
		p.fail(reasonTemplateNotFound, "template %q does not exist; create it, or delete this environment", p.env.Spec.TemplateRef.Name)
	case err != nil:
		return err
	default:
		p.template = &template
		written, err := p.freeze(ctx)
		if err != nil || written {
			p.stale = written
			return err
		}
	}
	// Pools follow the frozen specs, also while the template is missing: scaling still works.
	return p.syncPools(ctx)
}

func (p *pass) findPools(ctx context.Context) error {
	var pools v1alpha1.SandboxPoolList
	err := p.client.List(ctx, &pools, client.InNamespace(p.env.Namespace), client.MatchingLabels{v1alpha1.LabelEnv: p.env.Name})
	if err != nil {
		return err
	}
	for i := range pools.Items {
		if sp := &pools.Items[i]; metav1.IsControlledBy(sp, p.env) {
			p.pools[sp.Name] = sp
		}
	}
	return nil
}

// segment is the local cluster's part of the env; nil when it has none.
func (p *pass) segment() *v1alpha1.ClusterSegment {
	for i := range p.env.Spec.Clusters {
		if p.env.Spec.Clusters[i].ClusterID == p.options.ClusterID {
			return &p.env.Spec.Clusters[i]
		}
	}
	return nil
}

// freeze renders every local member into the env itself: frozen spec, scaling group, provenance. It reports whether
// the env was written.
func (p *pass) freeze(ctx context.Context) (bool, error) {
	p.broken = map[string]bool{}
	segment := p.segment()
	if segment == nil {
		return false, nil
	}
	pull, err := p.hasPullSecret(ctx)
	if err != nil {
		return false, err
	}
	changed, rolled := false, []string{}
	for i := range segment.Members {
		m := &segment.Members[i]
		follows := followsTemplate(Inputs{Env: p.env, Member: m})
		spec, group, err := p.render(m, pull)
		if err != nil {
			kept := ""
			if p.pools[m.Name] != nil {
				kept = "; its pool stays as it is"
			}
			p.fail(reasonInvalidMember, "member %q: %v%s", m.Name, err, kept)
			p.broken[m.Name] = true
			continue
		}
		if m.Config.ScalingGroup != group {
			m.Config.ScalingGroup, changed = group, true
		}
		if m.Spec == nil || !equality.Semantic.DeepEqual(*m.Spec, spec) {
			if isRendered(m.Spec) && pool.Revision(m.Spec) != pool.Revision(&spec) {
				rolled = append(rolled, m.Name)
			}
			m.Spec, changed = &spec, true
		}
		meta := &v1alpha1.MemberMetadata{Labels: p.poolLabels(m), Annotations: p.poolAnnotations(m, follows)}
		if !equality.Semantic.DeepEqual(m.Metadata, meta) {
			m.Metadata, changed = meta, true
		}
	}
	if syncGroups(&p.env.Spec) {
		changed = true
	}
	if !changed {
		return false, nil
	}
	if err := p.client.Update(ctx, p.env); err != nil {
		if apierrors.IsInvalid(err) {
			p.fail(reasonInvalidMember, "the rendered environment was refused: %v", err)
			return false, nil
		}
		return false, err
	}
	for _, name := range rolled {
		p.events.Eventf(p.env, corev1.EventTypeNormal, "TemplateRollout", "pool %s moves to a new revision of template %s", name, p.template.Name)
	}
	return true, nil
}

// render makes the spec of a member's pool, and the name of its scaling group.
func (p *pass) render(m *v1alpha1.Member, pull bool) (spec v1alpha1.SandboxPoolSpec, group string, err error) {
	size, err := p.size(m)
	if err != nil {
		return spec, "", err
	}
	spec, err = Render(Inputs{Env: p.env, Member: m, Template: p.template, Size: size, PullSecret: pull})
	if err != nil {
		return spec, "", err
	}
	group, err = ResourceKey(spec.Template.Spec.Containers[0].Resources)
	return spec, group, err
}

// size is what the member's instance type says; nil where it names none. A type that is not declared is an error even
// beside inline resources: what the pool costs is counted in it.
func (p *pass) size(m *v1alpha1.Member) (*corev1.ResourceRequirements, error) {
	name := m.Config.InstanceType
	if name == "" {
		return nil, nil
	}
	if p.options.Size != nil {
		if size, ok := p.options.Size(name, max(1, ptr.Deref(m.Config.Multiplier, 1))); ok {
			return &size, nil
		}
	}
	return nil, fmt.Errorf("instance type %q is not in this deployment's catalogue; name one that `abx instancetypes` lists, or give inlineResources alone", name)
}

func (p *pass) hasPullSecret(ctx context.Context) (bool, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := p.client.Get(ctx, client.ObjectKey{Namespace: p.env.Namespace, Name: PullSecretName(p.env.Name)}, secret)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && metav1.IsControlledBy(secret, p.env), err
}

// poolLabels are the labels of a member's pool: the person's own, and the platform's on top.
func (p *pass) poolLabels(m *v1alpha1.Member) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, m.Config.Labels)
	for _, key := range []string{v1alpha1.LabelTeam, v1alpha1.LabelUser} {
		if v := p.env.Labels[key]; v != "" {
			labels[key] = v
		} else {
			delete(labels, key) // ownership is the env's, never a member's to claim
		}
	}
	labels[v1alpha1.LabelEnv] = p.env.Name
	labels[v1alpha1.LabelScalingGroup] = m.Config.ScalingGroup
	return labels
}

// poolAnnotations are the annotations of a member's pool. follows is whether its Pods follow the template.
func (p *pass) poolAnnotations(m *v1alpha1.Member, follows bool) map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, m.Config.Annotations)
	annotations[v1alpha1.AnnotationTemplateName] = p.template.Name
	if p.template.Spec.Version != "" {
		annotations[v1alpha1.AnnotationTemplateVersion] = p.template.Spec.Version
	}
	delete(annotations, v1alpha1.AnnotationGivenKeys)
	var given givenKeys
	if m.Metadata != nil {
		given = readGivenKeys(m.Metadata.Annotations)
	}
	if follows {
		given.PodLabels, given.PodAnnotations = sortedKeys(p.template.Spec.Template.Labels), sortedKeys(p.template.Spec.Template.Annotations)
	}
	given.PoolAnnotations = sortedKeys(annotations)
	given.writeTo(annotations)
	return annotations
}

// syncPools creates, updates and deletes pools until they are the local members.
func (p *pass) syncPools(ctx context.Context) error {
	members := map[string]bool{}
	if segment := p.segment(); segment != nil {
		for i := range segment.Members {
			m := &segment.Members[i]
			members[m.Name] = true
			if !isRendered(m.Spec) || m.Metadata == nil || p.broken[m.Name] {
				continue
			}
			if err := p.syncPool(ctx, m); err != nil {
				return err
			}
		}
	}
	for name, sp := range p.pools {
		if members[name] || sp.DeletionTimestamp != nil {
			continue
		}
		if err := p.client.Delete(ctx, sp, client.Preconditions{UID: &sp.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pool %s: %w", name, err)
		}
	}
	return nil
}

func (p *pass) syncPool(ctx context.Context, m *v1alpha1.Member) error {
	have := p.pools[m.Name]
	if have == nil {
		return p.createPool(ctx, m)
	}
	want := have.DeepCopy()
	want.Spec = *m.Spec.DeepCopy()
	want.Labels = maps.Clone(m.Metadata.Labels)
	if hash := have.Labels[v1alpha1.LabelTemplateHash]; hash != "" {
		want.Labels[v1alpha1.LabelTemplateHash] = hash // the pool's reconciler writes it
	}
	want.Annotations = regiven(have.Annotations, readGivenKeys(have.Annotations).PoolAnnotations, m.Metadata.Annotations)
	if have.DeletionTimestamp != nil || equality.Semantic.DeepEqual(have.Spec, want.Spec) &&
		maps.Equal(have.Labels, want.Labels) && maps.Equal(have.Annotations, want.Annotations) {
		return nil
	}
	if err := p.client.Update(ctx, want); err != nil {
		return fmt.Errorf("update pool %s: %w", m.Name, err)
	}
	if n := m.Spec.Replicas; have.Spec.Replicas != n && p.published(m.Name) == n {
		p.events.Eventf(want, corev1.EventTypeWarning, "ReplicasRestored",
			"replicas %d was set back to %d: environment %s owns the number; change it with `abx scale envs %[3]s pools %[4]s --replicas <n>`, or in the environment's member %[4]s at spec.replicas",
			have.Spec.Replicas, n, p.env.Name, m.Name)
	}
	p.pools[m.Name] = want
	return nil
}

// published is how many Pods the env's status, as it was last written, says that the member should have; -1 when it
// does not say.
func (p *pass) published(member string) int32 {
	for i := range p.env.Status.Clusters {
		c := &p.env.Status.Clusters[i]
		if c.ClusterID != p.options.ClusterID {
			continue
		}
		for j := range c.ObservedMembers {
			if c.ObservedMembers[j].Name == member {
				return c.ObservedMembers[j].DesiredReplicas
			}
		}
	}
	return -1
}

func (p *pass) createPool(ctx context.Context, m *v1alpha1.Member) error {
	sp := &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, Namespace: p.env.Namespace,
			Labels: maps.Clone(m.Metadata.Labels), Annotations: maps.Clone(m.Metadata.Annotations),
		},
		Spec: *m.Spec.DeepCopy(),
	}
	if err := controllerutil.SetControllerReference(p.env, sp, p.client.Scheme()); err != nil {
		return err
	}
	err := p.client.Create(ctx, sp)
	switch {
	case err == nil:
		p.pools[m.Name] = sp
		return nil
	case apierrors.IsAlreadyExists(err):
		// Either the cache has not caught up, and the pool's event brings us back, or it is somebody else's.
		var other v1alpha1.SandboxPool
		if err := p.client.Get(ctx, client.ObjectKeyFromObject(sp), &other); err == nil && !metav1.IsControlledBy(&other, p.env) {
			p.fail(reasonPoolConflict, "pool %q exists and does not belong to this environment; rename the member", m.Name)
		}
		return nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		p.fail(reasonInvalidMember, "pool %q was refused: %v", m.Name, err)
		return nil
	default:
		return fmt.Errorf("create pool %s: %w", m.Name, err)
	}
}

// publish writes the status, once a pass, and only when it says something new. It is of the env's generation when the
// pools are in line with that and their own statuses, which it adds up, say so.
func (p *pass) publish(ctx context.Context, inLine bool) error {
	version := ""
	if p.template != nil {
		version = p.template.Spec.Version
	}
	next := observe(p.env, p.options.ClusterID, version, p.pools, p.problems)
	for _, sp := range p.pools {
		inLine = inLine && (sp.DeletionTimestamp != nil || sp.Status.ObservedGeneration == sp.Generation)
	}
	if !inLine {
		next.ObservedGeneration = p.env.Status.ObservedGeneration
	}
	if reflect.DeepEqual(next, p.env.Status) {
		return nil
	}
	for i := range next.Clusters {
		if next.Clusters[i].ClusterID == p.options.ClusterID {
			next.Clusters[i].LastSnapshotTime = ptr.To(metav1.Now())
		}
	}
	p.env.Status = next
	return client.IgnoreNotFound(p.client.Status().Update(ctx, p.env))
}
