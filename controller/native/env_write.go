package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/controller/claim"
)

func createEnv(c *call) (*response, error) {
	if err := c.authorize(access.VerbCreate, c.own(access.KindEnv)); err != nil {
		return nil, err
	}
	body, err := decode[envBody](c)
	if err != nil {
		return nil, err
	}
	template, err := c.checkEnv(&body)
	if err != nil {
		return nil, err
	}
	spec, err := body.Overrides.toSpec()
	if err != nil {
		return nil, err
	}
	if err := c.checkVolumes(c.caller.Namespace, body.Overrides, template); err != nil {
		return nil, err
	}
	env := &v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{
			Name: body.Name, Namespace: c.caller.Namespace,
			Labels: map[string]string{}, Annotations: body.Annotations,
		},
		Spec: v1alpha1.SandboxEnvSpec{TemplateRef: body.TemplateRef, Mode: body.Mode, Overrides: spec},
	}
	for k, v := range body.Labels {
		env.Labels[k] = v
	}
	if env.Labels[v1alpha1.LabelTeam], env.Labels[v1alpha1.LabelUser], err = c.ownerLabels(); err != nil {
		return nil, err
	}
	err = c.Client.Create(c.ctx, env.DeepCopy(), client.DryRunAll)
	if missingNamespace(err) && !c.dryRun() {
		// Whoever deleted it deleted what was in it, and not the tenant.
		if err = c.Access.RestoreNamespace(c.ctx, c.caller); err == nil {
			err = c.Client.Create(c.ctx, env.DeepCopy(), client.DryRunAll)
		}
	}
	if err == nil {
		err = c.release(body.Name)
	}
	if err == nil && !c.dryRun() {
		err = c.Client.Create(c.ctx, env)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil, conflict("choose another name, or update the env", "env %q exists already", body.Name)
	}
	if err != nil {
		return nil, err
	}
	if c.dryRun() {
		after := editableEnv(env, body.Overrides != nil && body.Overrides.ImagePullSecret != nil)
		return plan{before: struct{}{}, after: after, warnings: []string{
			"the env has no pools yet, so claims on it will fail until one is added",
		}}.response(), nil
	}
	if err := c.writePullSecret(env, nil, body.Overrides); err != nil {
		// Without its logins the env is not what was asked for: take it back, even if the client has gone.
		gone := c.Client.Delete(context.WithoutCancel(c.ctx), env)
		return nil, fmt.Errorf("store the registry logins of env %s: %w (the env was taken back: %w)", env.Name, err, client.IgnoreNotFound(gone))
	}
	resp, err := c.envResponse(env)
	if err != nil {
		return nil, err
	}
	resp.status = http.StatusCreated
	return resp, nil
}

func missingNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces"
}

// ownerLabels are the caller's team and user as labels. They are what an env's owner is known by, so what a label
// cannot hold cannot own one.
func (c *call) ownerLabels() (team, user string, err error) {
	for _, f := range []struct{ what, value string }{{"team", c.caller.Team}, {"user", c.caller.User}} {
		if !isLabelValue(f.value) {
			return "", "", refuse(http.StatusForbidden, codeForbidden,
				"ask an administrator for a key whose team and user are label values: letters, digits, - _ and ., at most 63",
				"the %s %q of this key cannot own objects", f.what, f.value)
		}
	}
	return c.caller.Team, c.caller.User, nil
}

// checkEnv holds a create to what the document cannot say, and returns the template.
func (c *call) checkEnv(body *envBody) (*v1alpha1.SandboxTemplate, error) {
	if body.Mode == "" {
		body.Mode = v1alpha1.ModeWarmPool
	}
	if body.Mode != v1alpha1.ModeWarmPool {
		return nil, notImplemented("use mode WarmPool", "mode %s is not implemented", body.Mode)
	}
	if err := checkUserKeys("labels", body.Labels, true); err != nil {
		return nil, err
	}
	if err := checkUserKeys("annotations", body.Annotations, false); err != nil {
		return nil, err
	}
	if err := checkOverrides(body.Overrides); err != nil {
		return nil, err
	}
	missing := notFound("template", body.TemplateRef.Name, "list the templates to see which there are")
	template, err := c.template(c.ctx, body.TemplateRef.Name)
	if err != nil {
		return nil, err
	}
	if template == nil || access.Authorize(c.caller, access.VerbUse, templateObject(template)) != nil {
		return nil, missing
	}
	return template, nil
}

func checkOverrides(o *envOverrides) error {
	if o == nil {
		return nil
	}
	if err := claim.CheckImage(o.Image); err != nil {
		return err
	}
	if o.Envd != nil && o.Envd.Verbose {
		return notImplemented("leave overrides.envd out", "overrides.envd.verbose is not implemented")
	}
	if o.Gateway != nil && o.Gateway.Enabled {
		return notImplemented("leave overrides.gateway out", "overrides.gateway is not implemented: outbound traffic is not controlled")
	}
	return nil
}

// checkUserKeys refuses keys in the platform's own domains: with them, an object could pass for somebody else's.
func checkUserKeys(field string, m map[string]string, labels bool) error {
	for _, k := range sortedNames(m) {
		values, settable := settableAnnotations[k]
		if settable && !labels {
			if !slices.Contains(values, m[k]) {
				return badBody(fmt.Sprintf("use one of %v", values), "%s: %s is %q", field, k, m[k])
			}
			continue
		}
		if isReserved(k) && k != v1alpha1.LabelQuotaURL {
			return badBody("use a domain of your own", "%s: %s is in a domain that the platform keeps for itself", field, k)
		}
		if err := checkKeySyntax(field, k, m[k], labels); err != nil {
			return err
		}
	}
	return nil
}

func updateEnv(c *call) (*response, error) {
	body, err := decode[envBody](c)
	if err != nil {
		return nil, err
	}
	if body.Mode == "" {
		body.Mode = v1alpha1.ModeWarmPool
	}
	if body.Name != c.param("name") {
		return nil, badBody("an env is not renamed: make a new one", "name is %q and must be %q, as in the address", body.Name, c.param("name"))
	}
	if err := checkOverrides(body.Overrides); err != nil {
		return nil, err
	}
	spec, err := body.Overrides.toSpec()
	if err != nil {
		return nil, err
	}
	var env *v1alpha1.SandboxEnv
	var p plan
	err = retryConflicts(c.ctx, func() error {
		if env, err = c.findEnv(access.VerbUpdate, access.KindEnv); err != nil {
			return err
		}
		secret, err := c.pullSecret(c.ctx, env)
		if err != nil {
			return err
		}
		if err := c.checkMatch("env", env.Name, envTag(env, secret)); err != nil {
			return err
		}
		if err := c.checkFixed(fixedEnvFields(editableEnv(env, false), body)); err != nil {
			return err
		}
		template, err := c.template(c.ctx, env.Spec.TemplateRef.Name)
		if err != nil {
			return err
		}
		if err := c.checkVolumes(env.Namespace, body.Overrides, template); err != nil {
			return err
		}
		p.before = editableEnv(env, secret != nil)
		env.Spec.Overrides = spec
		keeps, warning := pullSecretFate(secret, body.Overrides)
		p.after = editableEnv(env, keeps)
		p.warnings = nil
		if warning != "" {
			p.warnings = append(p.warnings, warning)
		}
		if err := c.Client.Update(c.ctx, env.DeepCopy(), client.DryRunAll); err != nil || c.dryRun() {
			return err
		}
		if err := c.release(env.Name); err != nil {
			return err
		}
		if err := c.Client.Update(c.ctx, env); err != nil {
			return err
		}
		return c.writePullSecret(env, secret, body.Overrides)
	})
	if err != nil {
		return nil, err
	}
	if c.dryRun() {
		return p.response(), nil
	}
	return c.envResponse(env)
}

func fixedEnvFields(now, sent envBody) []fixedField {
	return []fixedField{
		{"templateRef", now.TemplateRef, sent.TemplateRef},
		{"mode", now.Mode, sent.Mode},
		{"labels", now.Labels, sent.Labels},
		{"annotations", now.Annotations, sent.Annotations},
	}
}

// deleteEnv starts the deletion of an env with everything in it. Its pools, Pods and sandboxes go first.
func deleteEnv(c *call) (*response, error) {
	env, err := c.findEnv(access.VerbDelete, access.KindEnv)
	if err != nil {
		return nil, err
	}
	secret, err := c.pullSecret(c.ctx, env)
	if err != nil {
		return nil, err
	}
	if err := c.checkMatch("env", env.Name, envTag(env, secret)); err != nil {
		return nil, err
	}
	var members []v1alpha1.Member
	for _, segment := range env.Spec.Clusters {
		members = append(members, segment.Members...)
	}
	if c.dryRun() {
		p := plan{}
		for _, m := range members {
			p.cascade = append(p.cascade, reference{"pool", m.Name})
		}
		return c.withSandboxes(p, claim.Filter{Owner: claim.Owner{Namespace: env.Namespace}, Env: env.Name})
	}
	if err := c.release(env.Name); err != nil {
		return nil, err
	}
	err = c.Client.Delete(c.ctx, env, client.Preconditions{UID: &env.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	for _, m := range members {
		if quota, _, _, held := catalogue.Units(m); held {
			c.settle(quota, env.Namespace, env.Name, m.Name)
		}
	}
	pools := "its pools are"
	if len(members) == 1 {
		pools = "1 pool are"
	}
	return &response{status: http.StatusAccepted, body: namedResult{Name: env.Name, Message: "env and " + pools + " being deleted"}}, nil
}

// withSandboxes adds the sandboxes that a deletion would end.
func (c *call) withSandboxes(p plan, f claim.Filter) (*response, error) {
	live, err := c.Claims.List(c.ctx, f)
	if err != nil {
		return nil, err
	}
	for _, s := range live {
		p.cascade = append(p.cascade, reference{"sandbox", s.ID})
	}
	switch len(live) {
	case 0:
	case 1:
		p.warnings = append(p.warnings, "1 running sandbox would end")
	default:
		p.warnings = append(p.warnings, fmt.Sprintf("%d running sandboxes would end", len(live)))
	}
	return p.response(), nil
}

// pullSecretFate says whether an env has registry logins after an update, and what to warn about.
func pullSecretFate(stored *corev1.Secret, o *envOverrides) (keeps bool, warning string) {
	switch {
	case o != nil && o.ImagePullSecret != nil:
		if stored != nil {
			return true, "the stored registry logins are replaced"
		}
		return true, ""
	case o != nil && o.ImagePullSecretConfigured:
		return stored != nil, ""
	case stored != nil:
		return false, "the stored registry logins are deleted: send overrides.imagePullSecretConfigured true to keep them"
	}
	return false, ""
}
