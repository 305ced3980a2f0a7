package e2b

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
)

// AnnotationAliases of a SandboxEnv lists, with commas, further names that a template string may use for it, such as
// "base", which SDKs send when a program names no template. The name of an environment wins over an alias.
const AnnotationAliases = v1alpha1.Prefix + "e2b-aliases"

// source is where a sandbox comes from: an environment or, in a named cluster, one pool.
type source struct {
	Env, Pool string
	// DefaultTimeout is true when a sandbox that names no timeout gets one here.
	DefaultTimeout bool
}

// resolve finds what a template string names, in the caller's namespace.
func (h *Handler) resolve(ctx context.Context, c *call, ref Reference) (source, error) {
	if ref.Cluster != "" && ref.Cluster != h.cluster {
		return source{}, badRequest("cluster %q is not known here: this is cluster %q; write %q", ref.Cluster, h.cluster,
			Reference{Name: ref.Name, Image: ref.Image}.String())
	}
	// The common case reads one object.
	env, err := h.environment(ctx, c, ref.Name)
	if err != nil {
		return source{}, err
	}
	var envs []v1alpha1.SandboxEnv
	if env == nil {
		if envs, err = h.environments(ctx, c); err != nil {
			return source{}, err
		}
		if env, err = pick(envs, ref.Name); err != nil {
			return source{}, err
		}
	}
	if env != nil {
		overrides := env.Spec.Overrides
		return source{Env: env.Name, DefaultTimeout: overrides != nil && overrides.DefaultIdleTimeout != nil}, nil
	}
	if ref.Cluster != "" {
		pool, err := h.pool(ctx, c, ref.Name)
		if err != nil || pool != nil {
			return source{Pool: ref.Name, DefaultTimeout: pool != nil && pool.Spec.DefaultIdleTimeout != nil}, err
		}
	}
	return source{}, badRequest("%s", unknownTemplate(ref.Name, envs))
}

// environments are those of the caller, by name.
func (h *Handler) environments(ctx context.Context, c *call) ([]v1alpha1.SandboxEnv, error) {
	var list v1alpha1.SandboxEnvList
	if err := h.envs.List(ctx, &list, client.InNamespace(c.caller.Namespace)); err != nil {
		return nil, fmt.Errorf("list environments: %w", err)
	}
	mine := slices.DeleteFunc(list.Items, func(e v1alpha1.SandboxEnv) bool {
		return !e.DeletionTimestamp.IsZero() || c.authorize(access.VerbUse, ownedObject(access.KindEnv, &e)) != nil
	})
	slices.SortFunc(mine, func(a, b v1alpha1.SandboxEnv) int { return strings.Compare(a.Name, b.Name) })
	return mine, nil
}

// environment returns an environment of the caller, or nil.
func (h *Handler) environment(ctx context.Context, c *call, name string) (*v1alpha1.SandboxEnv, error) {
	var env v1alpha1.SandboxEnv
	if found, err := h.read(ctx, c, access.KindEnv, name, &env); err != nil || !found {
		return nil, err
	}
	return &env, nil
}

// pool returns a pool of the caller, or nil.
func (h *Handler) pool(ctx context.Context, c *call, name string) (*v1alpha1.SandboxPool, error) {
	var pool v1alpha1.SandboxPool
	if found, err := h.read(ctx, c, access.KindPool, name, &pool); err != nil || !found {
		return nil, err
	}
	return &pool, nil
}

// read fills in an object of the caller's that is not on its way out. A foreign one is as good as none.
func (h *Handler) read(ctx context.Context, c *call, kind access.Kind, name string, out client.Object) (bool, error) {
	err := h.envs.Get(ctx, client.ObjectKey{Namespace: c.caller.Namespace, Name: name}, out)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	return out.GetDeletionTimestamp().IsZero() && c.authorize(access.VerbUse, ownedObject(kind, out)) == nil, nil
}

func ownedObject(kind access.Kind, o client.Object) access.Object {
	labels := o.GetLabels()
	return access.Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(),
		Team: labels[v1alpha1.LabelTeam], User: labels[v1alpha1.LabelUser]}
}

// pick returns the environment of a name or else of an alias; nil when there is none.
func pick(envs []v1alpha1.SandboxEnv, name string) (*v1alpha1.SandboxEnv, error) {
	var found []*v1alpha1.SandboxEnv
	for i := range envs {
		if envs[i].Name == name {
			return &envs[i], nil
		}
		if slices.Contains(aliases(&envs[i]), name) {
			found = append(found, &envs[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	default:
		return nil, badRequest("%q is an alias of both %s and %s: name one of them", name, found[0].Name, found[1].Name)
	}
}

// aliases are the further names of an environment.
func aliases(env *v1alpha1.SandboxEnv) []string {
	var out []string
	for name := range strings.SplitSeq(env.Annotations[AnnotationAliases], ",") {
		if name = strings.TrimSpace(name); isName(name) && name != env.Name {
			out = append(out, name)
		}
	}
	return out
}

// shownNames bounds the list in an error.
const shownNames = 20

func unknownTemplate(name string, envs []v1alpha1.SandboxEnv) string {
	if len(envs) == 0 {
		return fmt.Sprintf("sandbox env or pool %q not found: there is no environment yet; make one with `abx create envs`", name)
	}
	names := make([]string, 0, shownNames)
	for i := range envs[:min(len(envs), shownNames)] {
		names = append(names, envs[i].Name)
	}
	text := fmt.Sprintf("sandbox env or pool %q not found; there is %s", name, strings.Join(names, ", "))
	if more := len(envs) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more (`abx envs`)", more)
	}
	return text
}
