package compile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"navix.sh/agentbox/registry"
)

var verbMethods = map[string]string{"create": "POST", "update": "PUT", "delete": "DELETE", "scale": "PUT"}

// verbs reads create, update, delete and scale: an operation id, or a mapping.
func (c *resourceCompiler) verbs(n *yaml.Node) {
	for _, p := range pairs(n) {
		name := p.key.Value
		method, ok := verbMethods[name]
		if !ok {
			c.failf(p.key, "verb %q is not known%s; known: %s", name, nearest(name, registry.Verbs), strings.Join(registry.Verbs, ", "))
			continue
		}
		id := p.value
		v := registry.Verb{Name: name}
		if p.value.Kind == yaml.MappingNode {
			c.known(p.value, "verb", "operation", "sets", "describe")
			id, v.Sets, v.Describe = get(p.value, "operation"), text(get(p.value, "sets")), text(get(p.value, "describe"))
		}
		op := c.operationOf(id, method, name != "create")
		if op == nil {
			continue
		}
		v.Operation, v.AgentForbidden = op.ID, op.AgentForbidden
		if v.Describe == "" {
			v.Describe = op.Summary
		}
		c.checkVerb(p, &v, op)
		c.r.Verbs = append(c.r.Verbs, v)
	}
}

func (c *resourceCompiler) checkVerb(p pair, v *registry.Verb, op *registry.Operation) {
	if op.QueryParam("dryRun") == nil {
		c.failf(p.key, "%s: %s does not take dryRun", v.Name, op.ID)
	}
	if v.Name == "delete" {
		return
	}
	if op.Request == nil {
		c.failf(p.key, "%s: %s takes no body", v.Name, op.ID)
		return
	}
	if v.Name == "create" {
		return
	}
	body := c.ix.Schema(op.Request.Schema)
	if c.r.Item == nil || c.r.Item.Editable == "" {
		c.failf(p.key, "%s: nothing says what the body starts from: the item has no editable", v.Name)
	}
	if (v.Name == "scale") != (v.Sets != "") {
		c.failf(p.key, "%s: sets belongs to scale, and scale needs it", v.Name)
	}
	if v.Sets != "" && body != nil && body.Field(v.Sets) == nil {
		c.failf(p.value, "sets %q names no field of %s%s", v.Sets, body.Name, nearest(v.Sets, fieldNames(body)))
	}
}

func (c *resourceCompiler) actions(n *yaml.Node) {
	for _, p := range pairs(n) {
		c.known(p.value, "action", "operation", "done", "body", "describe", "flags")
		op := c.operationOf(get(p.value, "operation"), "POST", true)
		if op == nil {
			continue
		}
		a := registry.Action{Name: p.key.Value, Operation: op.ID, Done: text(get(p.value, "done")),
			Describe: text(get(p.value, "describe")), Body: c.jsonOf(get(p.value, "body")), AgentForbidden: op.AgentForbidden}
		if a.Done == "" || a.Describe == "" {
			c.failf(p.key, "action %s needs done (its past tense) and describe", a.Name)
		}
		c.checkBody(p, &a, op)
		c.bodyFlags(p, &a, op)
		c.r.Actions = append(c.r.Actions, a)
	}
}

// checkBody holds the fixed body of an action to the operation's request.
func (c *resourceCompiler) checkBody(p pair, a *registry.Action, op *registry.Operation) {
	body := get(p.value, "body")
	if (body != nil) != (op.Request != nil) {
		c.failf(p.key, "action %s: %s and the action must both have a body, or neither", a.Name, op.ID)
		return
	}
	if body == nil {
		return
	}
	schema := c.ix.Schema(op.Request.Schema)
	if schema == nil {
		return
	}
	for _, kv := range pairs(body) {
		f := schema.Field(kv.key.Value)
		if f == nil {
			c.failf(kv.key, "body of action %s: %q names no field of %s%s", a.Name, kv.key.Value, schema.Name, nearest(kv.key.Value, fieldNames(schema)))
			continue
		}
		if set := closedSet(&f.Schema); set != nil && !slices.Contains(set, kv.value.Value) {
			c.failf(kv.value, "body of action %s: %q is none of %s", a.Name, kv.value.Value, strings.Join(set, ", "))
		}
	}
	for _, f := range schema.Fields {
		if f.Required && get(body, f.Name) == nil {
			c.failf(body, "body of action %s lacks the required %s", a.Name, f.Name)
		}
	}
}

// bodyFlags reads the flags of an action: the field that each sets, and what it is for.
func (c *resourceCompiler) bodyFlags(p pair, a *registry.Action, op *registry.Operation) {
	body := get(p.value, "body")
	for _, kv := range pairs(get(p.value, "flags")) {
		flag := registry.BodyFlag{Name: kv.key.Value, Describe: text(kv.value)}
		if flag.Describe == "" {
			c.failf(kv.key, "flag %q of action %s needs a text that says what it is for", flag.Name, a.Name)
		}
		c.checkFlag(kv.key, flag.Name, "flag", "action "+a.Name)
		if get(body, flag.Name) != nil {
			c.failf(kv.key, "flag %q of action %s sets what the body has already", flag.Name, a.Name)
		}
		if op.Request == nil {
			continue // said of the body
		}
		schema := c.ix.Schema(op.Request.Schema)
		if schema == nil {
			continue
		}
		f := schema.Field(flag.Name)
		switch {
		case f == nil:
			c.failf(kv.key, "flag %q of action %s names no field of %s%s", flag.Name, a.Name, schema.Name, nearest(flag.Name, fieldNames(schema)))
			continue
		case f.Schema.Type != registry.TypeString:
			c.failf(kv.key, "flag %q of action %s: a flag sets a text, and the field is none", flag.Name, a.Name)
		}
		flag.Values = closedSet(&f.Schema)
		a.Flags = append(a.Flags, flag)
	}
}

// checkFlag refuses a flag of the document that is called like one of the command line's own.
func (c *resourceCompiler) checkFlag(n *yaml.Node, flag, what, of string) {
	if slices.Contains(registry.Flags, flag) || strings.HasPrefix(flag, "no-") {
		c.failf(n, "%s %q of %s clashes with a flag that every command has", what, flag, of)
	}
}

func (c *resourceCompiler) view(n *yaml.Node) {
	c.known(n, "view", "name", "operation", "renderer", "field", "describe", "until", "options")
	v := registry.View{
		Name: text(get(n, "name")), Renderer: text(get(n, "renderer")), Field: text(get(n, "field")),
		Describe: text(get(n, "describe")), Until: text(get(n, "until")),
	}
	if v.Name == "" || v.Describe == "" {
		c.failf(n, "a view needs a name and describe")
	}
	if v.Until != "" && c.item != nil {
		c.resolve(get(n, "until"), c.item, v.Until, "until")
	}
	switch v.Renderer {
	case "console":
		if get(n, "operation") != nil {
			c.failf(n, "view %s: a console view has no operation", v.Name)
		}
	case "logs", "docs":
		op := c.operationOf(get(n, "operation"), "GET", true)
		if op == nil {
			return
		}
		v.Operation = op.ID
		if (v.Renderer == "docs") != (v.Field != "") {
			c.failf(n, "view %s: field belongs to renderer docs, which needs it", v.Name)
		}
		if v.Field != "" && c.item != nil {
			c.resolve(get(n, "field"), c.item, v.Field, "view")
		}
		c.options(n, &v, op)
	default:
		c.failf(n, "view %s: renderer %q is not known; known: logs, docs, console", v.Name, v.Renderer)
	}
	c.r.Views = append(c.r.Views, v)
}

func (c *resourceCompiler) options(n *yaml.Node, v *registry.View, op *registry.Operation) {
	for _, p := range pairs(get(n, "options")) {
		flag, param := p.key.Value, text(p.value)
		c.checkFlag(p.key, flag, "option", "view "+v.Name)
		if op.QueryParam(param) == nil {
			c.failf(p.value, "option %q of view %s names no query parameter of %s", flag, v.Name, op.ID)
		}
		v.Options = append(v.Options, registry.Option{Flag: flag, Param: param})
	}
}
