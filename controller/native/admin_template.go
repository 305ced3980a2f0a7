package native

import (
	"encoding/json"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
)

// templateBody is what a create and an update of a template take: the object itself, or the same as JSON text.
type templateBody struct {
	CRD     map[string]any `json:"crd,omitempty"`
	CRDJSON string         `json:"crdJson,omitempty"`
}

func adminListTemplates(c *call) (*response, error) {
	if err := c.admin(access.VerbList); err != nil {
		return nil, err
	}
	// With a team or user, the templates that they would see.
	who := c.caller
	team, user := c.query.Get("team"), c.query.Get("user")
	if team != "" || user != "" {
		who = access.Caller{KeyID: c.caller.KeyID, Role: access.RoleTenant, Team: team, User: user}
	}
	return c.serveTemplates(who, map[string]func(templateSummary) string{
		// Applied above: these match nobody's columns.
		"team": func(templateSummary) string { return team },
		"user": func(templateSummary) string { return user },
	})
}

func (c *call) adminTemplate() (*v1alpha1.SandboxTemplate, error) {
	t, err := c.template(c.ctx, c.param("name"))
	if err == nil && t == nil {
		err = notFound("template", c.param("name"), "list the admin-templates to see which there are")
	}
	return t, err
}

func adminGetTemplate(c *call) (*response, error) {
	if err := c.admin(access.VerbGet); err != nil {
		return nil, err
	}
	t, err := c.adminTemplate()
	if err != nil {
		return nil, err
	}
	return c.adminTemplateResponse(t)
}

func (c *call) adminTemplateResponse(t *v1alpha1.SandboxTemplate) (*response, error) {
	d, err := c.templateDetailOf(t)
	if err != nil {
		return nil, err
	}
	return okTagged(templateEnvelope{Template: d, Editable: &templateBody{CRD: editableTemplate(t)}}, templateTag(t)), nil
}

// editableTemplate is a template as an administrator writes it.
func editableTemplate(t *v1alpha1.SandboxTemplate) map[string]any {
	manifest := t.DeepCopy()
	manifest.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxTemplate"}
	manifest.ResourceVersion = ""
	m, _ := manifestOf(manifest).(map[string]any)
	return m
}

// templateFrom reads the object that a body holds, and holds it to its address.
func (c *call) templateFrom() (*unstructured.Unstructured, error) {
	body, err := decode[templateBody](c)
	if err != nil {
		return nil, err
	}
	if body.CRDJSON != "" {
		if err := json.Unmarshal([]byte(body.CRDJSON), &body.CRD); err != nil || body.CRD == nil {
			return nil, badBody("put one SandboxTemplate as JSON text into it, or use crd", "crdJson does not hold a JSON object")
		}
	}
	u := &unstructured.Unstructured{Object: body.CRD}
	want := v1alpha1.GroupVersion.WithKind("SandboxTemplate")
	if u.GetAPIVersion() != want.GroupVersion().String() || u.GetKind() != want.Kind {
		return nil, badBody("start from what `--editable` prints", "apiVersion and kind must be %s and %s", want.GroupVersion(), want.Kind)
	}
	if u.GetName() == "" {
		return nil, badBody("name it", "metadata.name is missing")
	}
	if u.GetNamespace() != "" {
		return nil, badBody("leave it out", "metadata.namespace: a template is in no namespace")
	}
	if address := c.param("name"); address != "" && u.GetName() != address {
		return nil, badBody("a template is not renamed: make a new one", "metadata.name is %q and must be %q, as in the address", u.GetName(), address)
	}
	u.SetManagedFields(nil)
	u.SetOwnerReferences(nil)
	u.SetFinalizers(nil)
	delete(u.Object, "status")
	return u, nil
}

// typed reads an object back as its type, to answer with it.
func typed(u *unstructured.Unstructured) (*v1alpha1.SandboxTemplate, error) {
	t := &v1alpha1.SandboxTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, t); err != nil {
		return nil, badBody("compare it with a template that exists", "the template does not read as one: %s", err)
	}
	if len(t.Spec.Template.Spec.Containers) == 0 {
		return nil, badBody("the first container is the sandbox", "spec.template.spec.containers is missing")
	}
	return t, nil
}

// strict has the API server refuse fields that it does not know, instead of dropping them.
func (c *call) strict() client.Client {
	return client.WithFieldValidation(c.Client, metav1.FieldValidationStrict)
}

func adminCreateTemplate(c *call) (*response, error) {
	if err := c.admin(access.VerbCreate); err != nil {
		return nil, err
	}
	u, err := c.templateFrom()
	if err != nil {
		return nil, err
	}
	u.SetResourceVersion("")
	u.SetUID("")
	if _, err := typed(u); err != nil {
		return nil, err
	}
	var opts []client.CreateOption
	if c.dryRun() {
		opts = append(opts, client.DryRunAll)
	}
	err = c.strict().Create(c.ctx, u, opts...)
	if apierrors.IsAlreadyExists(err) {
		return nil, conflict("choose another name, or update the template", "template %q exists already", u.GetName())
	}
	if err != nil {
		return nil, err
	}
	t, err := typed(u)
	if err != nil {
		return nil, err
	}
	if c.dryRun() {
		return plan{before: struct{}{}, after: editableTemplate(t)}.response(), nil
	}
	resp, err := c.adminTemplateResponse(t)
	if err != nil {
		return nil, err
	}
	resp.status = http.StatusCreated
	return resp, nil
}

func adminUpdateTemplate(c *call) (*response, error) {
	if err := c.admin(access.VerbUpdate); err != nil {
		return nil, err
	}
	sent, err := c.templateFrom()
	if err != nil {
		return nil, err
	}
	if _, err := typed(sent); err != nil {
		return nil, err
	}
	pinned := sent.GetResourceVersion()
	var before, after *v1alpha1.SandboxTemplate
	err = retryConflicts(c.ctx, func() error {
		if before, err = c.adminTemplate(); err != nil {
			return err
		}
		if err := c.checkMatch("template", before.Name, templateTag(before)); err != nil {
			return err
		}
		if pinned != "" && pinned != before.ResourceVersion {
			return conflict("read it again, and repeat the change on what is there now", "template %q changed: its resourceVersion is not %s any more", before.Name, pinned)
		}
		u := sent.DeepCopy()
		u.SetResourceVersion(before.ResourceVersion)
		u.SetUID(before.UID)
		var opts []client.UpdateOption
		if c.dryRun() {
			opts = append(opts, client.DryRunAll)
		}
		if err := c.strict().Update(c.ctx, u, opts...); err != nil {
			return err
		}
		after, err = typed(u)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.dryRun() {
		p := plan{before: editableTemplate(before), after: editableTemplate(after)}
		users, err := c.envsOf(before.Name)
		if err != nil {
			return nil, err
		}
		if len(users) > 0 {
			p.warnings = append(p.warnings, "idle Pods of these envs follow the template: "+strings.Join(users, ", "))
		}
		return p.response(), nil
	}
	return c.adminTemplateResponse(after)
}

// envsOf names the envs that a template is used by, as namespace/name.
func (c *call) envsOf(template string) ([]string, error) {
	var list v1alpha1.SandboxEnvList
	if err := c.Client.List(c.ctx, &list); err != nil {
		return nil, err
	}
	var out []string
	for _, env := range list.Items {
		if env.Spec.TemplateRef.Name == template {
			out = append(out, env.Namespace+"/"+env.Name)
		}
	}
	return out, nil
}

// adminDeleteTemplate refuses while envs use the template: their pools could never be made anew.
func adminDeleteTemplate(c *call) (*response, error) {
	if err := c.admin(access.VerbDelete); err != nil {
		return nil, err
	}
	t, err := c.adminTemplate()
	if err != nil {
		return nil, err
	}
	if err := c.checkMatch("template", t.Name, templateTag(t)); err != nil {
		return nil, err
	}
	users, err := c.envsOf(t.Name)
	if err != nil {
		return nil, err
	}
	if len(users) > 0 {
		return nil, conflict("delete the envs first", "template %q is used by %s", t.Name, strings.Join(users, ", "))
	}
	if c.dryRun() {
		return plan{}.response(), nil
	}
	err = c.Client.Delete(c.ctx, t, client.Preconditions{UID: &t.UID, ResourceVersion: &t.ResourceVersion})
	if err = client.IgnoreNotFound(err); err != nil {
		return nil, err
	}
	return &response{status: http.StatusAccepted, body: namedResult{Name: t.Name, Message: "template deleted"}}, nil
}
