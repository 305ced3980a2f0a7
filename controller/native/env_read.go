package native

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
)

// objectOf is what authorisation is asked about for a Kubernetes object.
func objectOf(k access.Kind, o client.Object) access.Object {
	return access.Object{
		Kind: k, Namespace: o.GetNamespace(), Name: o.GetName(),
		Team: o.GetLabels()[v1alpha1.LabelTeam], User: o.GetLabels()[v1alpha1.LabelUser],
	}
}

// findEnv reads the env that the path names, and asks whether the caller may do v to what kind of thing in it. A
// tenant's envs are in its own namespace; an administrator also finds those of others.
func (c *call) findEnv(v access.Verb, k access.Kind) (*v1alpha1.SandboxEnv, error) {
	name := c.param("name")
	missing := notFound("env", name, "list the envs to see what there is")
	var env v1alpha1.SandboxEnv
	err := c.read(c.ctx, c.caller.Namespace, name, &env)
	if apierrors.IsNotFound(err) && c.caller.Role == access.RoleAdmin {
		var found *v1alpha1.SandboxEnv
		if found, err = c.findForeignEnv(name, missing); err == nil {
			env = *found
		}
	}
	if apierrors.IsNotFound(err) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	o := objectOf(k, &env)
	if err := c.authorize(v, o); err != nil {
		if asAPIError(err).code == codeNotFound {
			return nil, missing
		}
		return nil, err
	}
	return &env, nil
}

// read gets an object whose name came from outside. A name that no object can have names nothing.
func (c *call) read(ctx context.Context, namespace, name string, o client.Object) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return apierrors.NewNotFound(v1alpha1.Resource("name"), name)
	}
	return c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
}

func (c *call) findForeignEnv(name string, missing error) (*v1alpha1.SandboxEnv, error) {
	var all v1alpha1.SandboxEnvList
	if err := c.Client.List(c.ctx, &all); err != nil {
		return nil, err
	}
	var found []v1alpha1.SandboxEnv
	for _, env := range all.Items {
		if env.Name == name {
			found = append(found, env)
		}
	}
	switch len(found) {
	case 0:
		return nil, missing
	case 1:
		return &found[0], nil
	}
	owners := make([]string, 0, len(found))
	for _, env := range found {
		owners = append(owners, fmt.Sprintf("%s of %s", env.Labels[v1alpha1.LabelUser], env.Labels[v1alpha1.LabelTeam]))
	}
	return nil, badParameter("say whose with X-Impersonate-Team and X-Impersonate-User: "+strings.Join(owners, ", "),
		"%d tenants have an env called %q", len(found), name)
}

// envs returns the envs that the caller may see, by name.
func (c *call) envs(ctx context.Context) ([]v1alpha1.SandboxEnv, error) {
	var list v1alpha1.SandboxEnvList
	if err := c.Client.List(ctx, &list, c.scope()...); err != nil {
		return nil, err
	}
	list.Items = slices.DeleteFunc(list.Items, func(env v1alpha1.SandboxEnv) bool {
		return access.Authorize(c.caller, access.VerbGet, objectOf(access.KindEnv, &env)) != nil
	})
	slices.SortFunc(list.Items, func(a, b v1alpha1.SandboxEnv) int {
		return strings.Compare(a.Name+"\x00"+a.Namespace, b.Name+"\x00"+b.Namespace)
	})
	return list.Items, nil
}

// scope narrows a list to where the caller's objects can be.
func (c *call) scope() []client.ListOption {
	if c.caller.Role == access.RoleAdmin {
		return nil
	}
	return []client.ListOption{client.InNamespace(c.caller.Namespace)}
}

func listEnvs(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, c.own(access.KindEnv)); err != nil {
		return nil, err
	}
	return lister[envSummary]{
		kind: "env",
		rows: func(ctx context.Context) ([]envSummary, error) {
			envs, err := c.envs(ctx)
			if err != nil {
				return nil, err
			}
			var templates v1alpha1.SandboxTemplateList
			if err := c.Client.List(ctx, &templates); err != nil {
				return nil, err
			}
			sizing := map[string]catalogue.PoolSizing{}
			for i := range templates.Items {
				sizing[templates.Items[i].Name] = c.sizingOf(&templates.Items[i])
			}
			out := make([]envSummary, 0, len(envs))
			for i := range envs {
				s := summaryOf(&envs[i])
				if s.PoolSizing = sizing[s.TemplateName]; s.PoolSizing == "" {
					s.PoolSizing = c.sizingOf(nil)
				}
				out = append(out, s)
			}
			return out, nil
		},
		key: func(r envSummary) string { return r.Namespace + "/" + r.Name },
		filters: map[string]func(envSummary) string{
			"name":         func(r envSummary) string { return r.Name },
			"templateName": func(r envSummary) string { return r.TemplateName },
			"mode":         func(r envSummary) string { return string(r.Mode) },
			"ready":        func(r envSummary) string { return fmt.Sprint(r.Ready) },
			"poolSizing":   func(r envSummary) string { return string(r.PoolSizing) },
			"team":         func(r envSummary) string { return r.Team },
		},
		changes: c.watchObjects(&v1alpha1.SandboxEnvList{}, c.scope()...),
	}.serve(c)
}

func summaryOf(env *v1alpha1.SandboxEnv) envSummary {
	s := envSummary{
		Name: env.Name, Namespace: env.Namespace,
		Team: env.Labels[v1alpha1.LabelTeam], User: env.Labels[v1alpha1.LabelUser],
		CreatedAt: env.CreationTimestamp, TemplateName: env.Spec.TemplateRef.Name, Mode: env.Spec.Mode,
		MemberCount: env.Status.MemberCount, DesiredReplicas: env.Status.DesiredReplicas,
		RunningReplicas: env.Status.RunningReplicas, IdleReplicas: env.Status.IdleReplicas,
		Ready: meta.IsStatusConditionTrue(env.Status.Conditions, v1alpha1.EnvConditionReady),
	}
	if env.Spec.Autoscaling != nil {
		s.ScalingGroupCount = len(env.Spec.Autoscaling.Groups)
		for _, g := range env.Spec.Autoscaling.Groups {
			if g.Enabled {
				s.AutoscalingEnabledGroupCount++
			}
		}
	}
	return s
}

func getEnv(c *call) (*response, error) {
	env, err := c.findEnv(access.VerbGet, access.KindEnv)
	if err != nil {
		return nil, err
	}
	return c.envResponse(env)
}

// envResponse is one env in full, with what an update of it would take.
func (c *call) envResponse(env *v1alpha1.SandboxEnv) (*response, error) {
	template, err := c.template(c.ctx, env.Spec.TemplateRef.Name)
	if err != nil {
		return nil, err
	}
	secret, err := c.pullSecret(c.ctx, env)
	if err != nil {
		return nil, err
	}
	body := editableEnv(env, secret != nil)
	d := envDetail{
		Name: env.Name, Namespace: env.Namespace, Labels: body.Labels,
		Team: env.Labels[v1alpha1.LabelTeam], User: env.Labels[v1alpha1.LabelUser],
		CreatedAt: env.CreationTimestamp, EnvDocs: c.envDocs(env, template), PoolSizing: c.sizingOf(template),
		Spec: envSpec{
			TemplateRef: env.Spec.TemplateRef, Mode: env.Spec.Mode, Defaults: env.Spec.Defaults,
			Overrides: body.Overrides,
		},
		Status: envStatus{
			Conditions: env.Status.Conditions, Clusters: env.Status.Clusters, ScalingGroups: env.Status.ScalingGroups,
			MemberCount: env.Status.MemberCount, DesiredReplicas: env.Status.DesiredReplicas,
			RunningReplicas: env.Status.RunningReplicas, IdleReplicas: env.Status.IdleReplicas,
			ObservedGeneration: env.Status.ObservedGeneration,
		},
		Generation: env.Generation,
	}
	if env.Spec.Autoscaling != nil {
		d.Spec.Autoscaling = &autoscalingSpec{groupItems(env)}
	}
	for _, segment := range env.Spec.Clusters {
		wire := envCluster{ClusterID: segment.ClusterID}
		for _, m := range segment.Members {
			wire.Members = append(wire.Members, envMember{Name: m.Name, Config: m.Config})
		}
		d.Spec.Clusters = append(d.Spec.Clusters, wire)
	}
	return okTagged(envEnvelope{Env: d, Editable: body}, envTag(env, secret)), nil
}

// editableEnv is what an update of an env takes to leave everything as it is.
func editableEnv(env *v1alpha1.SandboxEnv, pullSecret bool) envBody {
	return envBody{
		Name: env.Name, TemplateRef: env.Spec.TemplateRef, Mode: env.Spec.Mode,
		Overrides:   overridesOf(env.Spec.Overrides, pullSecret),
		Labels:      userKeys(env.Labels),
		Annotations: userKeys(env.Annotations),
	}
}

// envTag is the version of an env's desired state: its editable part, its registry logins, and which env it is. Member
// pools and scaling groups have versions of their own.
func envTag(env *v1alpha1.SandboxEnv, secret *corev1.Secret) string {
	var logins []byte
	if secret != nil {
		logins = secret.Data[corev1.DockerConfigJsonKey]
	}
	return etagOf(env.UID, editableEnv(env, secret != nil), logins)
}

// settableAnnotations are platform annotations that a person may set on an env.
var settableAnnotations = map[string][]string{v1alpha1.AnnotationTimeoutMode: {"idle", "absolute"}}

// reservedPrefixes are the platform's own label and annotation domains.
var reservedPrefixes = []string{v1alpha1.Prefix, "scheduling.navix.sh/", "agentbox.io/", "kubectl.kubernetes.io/"}

func isReserved(key string) bool {
	return slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

// userKeys keeps the labels or annotations that are a person's, not the platform's; nil when there are none.
func userKeys(m map[string]string) map[string]string {
	var out map[string]string
	for k, v := range m {
		if isReserved(k) && settableAnnotations[k] == nil {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

// template reads a template; nil when it is gone, which an env survives.
func (c *call) template(ctx context.Context, name string) (*v1alpha1.SandboxTemplate, error) {
	var t v1alpha1.SandboxTemplate
	err := c.read(ctx, "", name, &t)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// annotationSizing says on a template how pools of its envs state their size.
const annotationSizing = v1alpha1.Prefix + "pool-sizing"

// sizingOf is how pools of a template state their size: what the template says, else the catalogue, else either.
func (h *Handler) sizingOf(t *v1alpha1.SandboxTemplate) catalogue.PoolSizing {
	if t != nil {
		switch s := catalogue.PoolSizing(t.Annotations[annotationSizing]); s {
		case catalogue.SizingBilled, catalogue.SizingFreeForm, catalogue.SizingEither:
			return s
		}
	}
	if h.Catalogue.PoolSizing != "" {
		return h.Catalogue.PoolSizing
	}
	return catalogue.SizingEither
}

func pullSecretName(env string) string { return "ips-" + env }

// pullSecret reads an env's registry logins; nil when it has none. A Secret of that name that is not the env's is not
// the env's: it is left alone.
func (c *call) pullSecret(ctx context.Context, env *v1alpha1.SandboxEnv) (*corev1.Secret, error) {
	var s corev1.Secret
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: env.Namespace, Name: pullSecretName(env.Name)}, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !metav1.IsControlledBy(&s, env) {
		return nil, nil
	}
	return &s, nil
}
