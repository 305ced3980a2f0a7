package native

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
)

type templateSummary struct {
	templateBase
	RuntimeNames []string `json:"runtimeNames,omitempty"`
	HasDocs      bool     `json:"hasDocs"`
}

type templateBase struct {
	Name        string               `json:"name"`
	Version     string               `json:"version,omitempty"`
	Description string               `json:"description,omitempty"`
	CreatedAt   metav1.Time          `json:"createdAt"`
	CPU         string               `json:"cpu,omitempty"`
	Memory      string               `json:"memory,omitempty"`
	SyncSource  string               `json:"syncSource,omitempty"`
	PoolSizing  catalogue.PoolSizing `json:"poolSizing"`
}

type templateDetail struct {
	templateBase
	Docs    string `json:"docs,omitempty"`
	CRDYAML string `json:"crdYaml"`
}

type templateEnvelope struct {
	Template templateDetail `json:"template"`
	Editable *templateBody  `json:"editable,omitempty"`
}

// templateObject is what authorisation is asked about for a template: who may see it.
func templateObject(t *v1alpha1.SandboxTemplate) access.Object {
	o := access.Object{Kind: access.KindTemplate, Name: t.Name}
	if t.Spec.Visibility != nil {
		for _, r := range t.Spec.Visibility.Rules {
			o.Audience = append(o.Audience, access.Audience{Team: r.Team, Users: r.Users})
		}
	}
	return o
}

func (c *call) templateBaseOf(t *v1alpha1.SandboxTemplate) templateBase {
	b := templateBase{
		Name: t.Name, Version: t.Spec.Version, Description: t.Spec.Description, CreatedAt: t.CreationTimestamp,
		SyncSource: t.Labels[v1alpha1.LabelSyncSource], PoolSizing: c.sizingOf(t),
	}
	if containers := t.Spec.Template.Spec.Containers; len(containers) > 0 {
		b.CPU, b.Memory = sizeOf(containers[0].Resources)
	}
	return b
}

// templatesFor lists the templates that a caller may see, by name.
func (c *call) templatesFor(ctx context.Context, who access.Caller) ([]templateSummary, error) {
	var list v1alpha1.SandboxTemplateList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	var out []templateSummary
	for i := range list.Items {
		t := &list.Items[i]
		if access.Authorize(who, access.VerbGet, templateObject(t)) != nil {
			continue
		}
		s := templateSummary{templateBase: c.templateBaseOf(t), HasDocs: t.Annotations[v1alpha1.AnnotationDocs] != ""}
		for _, r := range t.Spec.Runtimes {
			s.RuntimeNames = append(s.RuntimeNames, r.Name)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b templateSummary) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (c *call) serveTemplates(who access.Caller, filters map[string]func(templateSummary) string) (*response, error) {
	filters["name"] = func(r templateSummary) string { return r.Name }
	return lister[templateSummary]{
		kind:    "template",
		rows:    func(ctx context.Context) ([]templateSummary, error) { return c.templatesFor(ctx, who) },
		key:     func(r templateSummary) string { return r.Name },
		filters: filters,
		changes: c.watchObjects(&v1alpha1.SandboxTemplateList{}),
	}.serve(c)
}

func listTemplates(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, access.Object{Kind: access.KindTemplate}); err != nil {
		return nil, err
	}
	return c.serveTemplates(c.caller, map[string]func(templateSummary) string{})
}

func getTemplate(c *call) (*response, error) {
	missing := notFound("template", c.param("name"), "list the templates to see which there are")
	t, err := c.template(c.ctx, c.param("name"))
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, missing
	}
	if err := c.authorize(access.VerbGet, templateObject(t)); err != nil {
		return nil, missing
	}
	d, err := c.templateDetailOf(t)
	if err != nil {
		return nil, err
	}
	return okTagged(templateEnvelope{Template: d}, templateTag(t)), nil
}

// templateDetailOf is a template in full. Its docs are filled in for this cluster, as an env's are.
func (c *call) templateDetailOf(t *v1alpha1.SandboxTemplate) (templateDetail, error) {
	manifest := t.DeepCopy()
	manifest.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxTemplate"}
	raw, err := yaml.Marshal(manifestOf(manifest))
	if err != nil {
		return templateDetail{}, err
	}
	return templateDetail{
		templateBase: c.templateBaseOf(t),
		Docs:         render(t.Annotations[v1alpha1.AnnotationDocs], c.placeholders()),
		CRDYAML:      string(raw),
	}, nil
}

// templateTag is the version of a template's desired state.
func templateTag(t *v1alpha1.SandboxTemplate) string {
	return etagOf(t.UID, t.Spec, t.Labels, t.Annotations)
}
