package compile

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"navix.sh/agentbox/registry"
)

// schemaKeys are the keywords that are understood. Another one would be a
// constraint that is dropped in silence.
var schemaKeys = []string{
	"$ref", "type", "format", "description", "title", "properties", "required", "additionalProperties", "items",
	"allOf", "oneOf", "anyOf", "enum", "default", "example", "nullable", "pattern", "minimum", "maximum",
	"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "readOnly", "writeOnly",
	"deprecated", "x-abx",
}

// schemas compiles every named component.
func (d *document) schemas() []registry.Schema {
	var out []registry.Schema
	for _, p := range pairs(get(get(d.root, "components"), "schemas")) {
		s := d.schema(p.value, []string{p.key.Value})
		if s.Ref != "" { // an alias or a single allOf: carry the content under its own name
			s = d.merged(p.value, []string{p.key.Value})
		}
		s.Name = p.key.Value
		if s.Describe == "" {
			d.failf(p.key, "schema %s has no description", p.key.Value)
		}
		out = append(out, s)
	}
	return out
}

// schema compiles a schema node. stack holds the names of the components that are
// being compiled: one of them met again stays a reference.
func (d *document) schema(n *yaml.Node, stack []string) registry.Schema {
	if n == nil {
		return registry.Schema{Type: registry.TypeAny}
	}
	d.known(n, "schema", schemaKeys...)
	if get(n, "$ref") != nil {
		return d.reference(n, stack)
	}
	if all := items(get(n, "allOf")); len(all) > 0 {
		// A single reference to a named object, described again, stays a reference.
		if len(all) == 1 && onlyDescribes(n) {
			s := d.schema(all[0], stack)
			if desc := text(get(n, "description")); desc != "" {
				s.Describe = desc
			}
			s.Nullable = s.Nullable || truth(get(n, "nullable"))
			return s
		}
		return d.merged(n, stack)
	}
	return d.plain(n, stack)
}

func onlyDescribes(n *yaml.Node) bool {
	for _, p := range pairs(n) {
		if !contains([]string{"allOf", "description", "nullable", "readOnly", "writeOnly", "x-abx", "default", "example"}, p.key.Value) {
			return false
		}
	}
	return true
}

func (d *document) reference(n *yaml.Node, stack []string) registry.Schema {
	target, name := d.deref(n)
	if target == nil {
		return registry.Schema{Type: registry.TypeAny}
	}
	if ref := get(n, "$ref"); ref.Value != "#/components/schemas/"+name {
		d.failf(ref, "a schema refers to #/components/schemas/<name> only, not to %s", ref.Value)
		return registry.Schema{Type: registry.TypeAny}
	}
	if slices.Contains(stack, name) {
		return registry.Schema{Ref: name}
	}
	s := d.schema(target, append(slices.Clip(stack), name))
	if s.Type == registry.TypeObject || s.Type == registry.TypeOneOf || s.Ref != "" {
		return registry.Schema{Ref: name}
	}
	return s
}

// merged compiles a schema whose allOf adds up to one object.
func (d *document) merged(n *yaml.Node, stack []string) registry.Schema {
	out := registry.Schema{}
	var required []*yaml.Node
	for _, part := range items(get(n, "allOf")) {
		target, name := d.deref(part)
		if target == nil {
			continue
		}
		if name != "" && slices.Contains(stack[1:], name) {
			d.failf(part, "allOf of %s includes itself", name)
			continue
		}
		inner := stack
		if name != "" {
			inner = append(slices.Clip(stack), name)
		}
		var s registry.Schema
		if get(target, "allOf") != nil {
			s = d.merged(target, inner)
		} else {
			s = d.plain(target, inner)
		}
		required = append(required, items(get(target, "required"))...)
		d.mergeInto(part, &out, s)
	}
	own := registry.Schema{}
	if get(n, "properties") != nil || get(n, "type") != nil || get(n, "additionalProperties") != nil {
		own = d.plain(n, stack)
	}
	required = append(required, items(get(n, "required"))...)
	d.mergeInto(n, &out, own)
	if out.Type == "" {
		out.Type = registry.TypeObject
	}
	for _, r := range required {
		if f := out.Field(r.Value); f != nil {
			f.Required = true
		} else {
			d.failf(r, "required names %q, which is no property%s", r.Value, nearest(r.Value, fieldNames(&out)))
		}
	}
	if desc := text(get(n, "description")); desc != "" {
		out.Describe = desc
	}
	out.Nullable = out.Nullable || truth(get(n, "nullable"))
	return out
}

func (d *document) mergeInto(at *yaml.Node, out *registry.Schema, s registry.Schema) {
	if out.Type != "" && s.Type != "" && out.Type != s.Type && (out.Type != registry.TypeMap || s.Type != registry.TypeObject) {
		d.failf(at, "allOf mixes type %s with type %s", out.Type, s.Type)
		return
	}
	fields, closed, elem := out.Fields, out.Closed, out.Elem
	for _, f := range s.Fields {
		if i := slices.IndexFunc(fields, func(g registry.Field) bool { return g.Name == f.Name }); i >= 0 {
			f.Required = f.Required || fields[i].Required
			fields[i] = f
		} else {
			fields = append(fields, f)
		}
	}
	if s.Type != "" {
		describe := out.Describe
		*out = s
		if out.Describe == "" {
			out.Describe = describe
		}
	}
	out.Fields, out.Closed = fields, closed || s.Closed
	if out.Elem == nil {
		out.Elem = elem
	}
}

// plain compiles a schema that is neither a reference nor an allOf.
func (d *document) plain(n *yaml.Node, stack []string) registry.Schema {
	s := registry.Schema{
		Type: text(get(n, "type")), Format: text(get(n, "format")), Describe: text(get(n, "description")),
		Pattern: text(get(n, "pattern")), Default: d.jsonOf(get(n, "default")), Example: d.jsonOf(get(n, "example")),
		Nullable: truth(get(n, "nullable")), Limits: d.limits(n),
	}
	for _, v := range items(get(n, "enum")) {
		if v.Tag == "!!null" {
			s.Nullable = true
			continue
		}
		if v.Kind == yaml.ScalarNode {
			s.Enum = append(s.Enum, v.Value)
		} else {
			s.Enum = append(s.Enum, d.jsonOf(v))
		}
	}
	branches := get(n, "oneOf")
	if branches == nil {
		branches = get(n, "anyOf")
	}
	switch {
	case branches != nil:
		return d.union(n, branches, s, stack)
	case s.Type == registry.TypeArray:
		elem := d.schema(get(n, "items"), stack)
		if get(n, "items") == nil {
			d.failf(n, "an array needs items")
		}
		s.Elem = &elem
	case s.Type == registry.TypeObject || get(n, "properties") != nil:
		d.object(n, &s, stack)
	case s.Type == "":
		s.Type = registry.TypeAny
	}
	return s
}

// union compiles oneOf and anyOf. A branch that only allows null makes the rest
// nullable; a single branch that is left stands for itself.
func (d *document) union(n, branches *yaml.Node, s registry.Schema, stack []string) registry.Schema {
	var out []registry.Schema
	for _, branch := range items(branches) {
		if text(get(branch, "type")) == "null" || len(items(get(branch, "enum"))) == 1 && items(get(branch, "enum"))[0].Tag == "!!null" {
			s.Nullable = true
			continue
		}
		out = append(out, d.schema(branch, stack))
	}
	switch len(out) {
	case 0:
		d.failf(n, "oneOf has no branch that holds a value")
		s.Type = registry.TypeAny
		return s
	case 1:
		one := out[0]
		one.Nullable = one.Nullable || s.Nullable
		if s.Describe != "" {
			one.Describe = s.Describe
		}
		return one
	}
	s.Type, s.OneOf = registry.TypeOneOf, out
	return s
}

func (d *document) object(n *yaml.Node, s *registry.Schema, stack []string) {
	s.Type = registry.TypeObject
	properties := pairs(get(n, "properties"))
	extra := get(n, "additionalProperties")
	switch {
	case extra == nil:
	case extra.Tag == "!!bool" && !truth(extra):
		s.Closed = true
	case truth(extra):
		s.Elem = &registry.Schema{Type: registry.TypeAny}
	default:
		elem := d.schema(extra, stack)
		s.Elem = &elem
	}
	if len(properties) == 0 && s.Elem != nil {
		s.Type = registry.TypeMap
		return
	}
	for _, p := range properties {
		s.Fields = append(s.Fields, d.field(p, stack))
	}
	for _, r := range items(get(n, "required")) {
		if f := s.Field(r.Value); f != nil {
			f.Required = true
		} else if len(properties) > 0 && get(n, "allOf") == nil {
			d.failf(r, "required names %q, which is no property%s", r.Value, nearest(r.Value, fieldNames(s)))
		}
	}
}

func (d *document) field(p pair, stack []string) registry.Field {
	f := registry.Field{
		Name: p.key.Value, Schema: d.schema(p.value, stack),
		ReadOnly: truth(get(p.value, "readOnly")), WriteOnly: truth(get(p.value, "writeOnly")),
	}
	if x := d.xabx(p.value, "a property", "fixed", "lever"); x != nil {
		f.Fixed, f.Lever = truth(get(x, "fixed")), text(get(x, "lever"))
		if f.Fixed && f.Lever == "" {
			d.failf(x, "property %s is fixed at create and has no lever: say what to do instead of changing it", f.Name)
		}
		if !f.Fixed && f.Lever != "" {
			d.failf(x, "property %s has a lever and is not fixed", f.Name)
		}
	}
	return f
}

func (d *document) limits(n *yaml.Node) *registry.Limits {
	var l registry.Limits
	found := false
	number := func(key string) *float64 {
		v := get(n, key)
		if v == nil {
			return nil
		}
		f, err := strconv.ParseFloat(v.Value, 64)
		if err != nil {
			d.failf(v, "%s must be a number", key)
			return nil
		}
		found = true
		return &f
	}
	count := func(keys ...string) *int {
		for _, key := range keys {
			if f := number(key); f != nil {
				i := int(*f)
				return &i
			}
		}
		return nil
	}
	l.Min, l.Max = number("minimum"), number("maximum")
	l.MinLength, l.MaxLength = count("minLength"), count("maxLength")
	l.MinItems, l.MaxItems = count("minItems", "minProperties"), count("maxItems", "maxProperties")
	if !found {
		return nil
	}
	return &l
}

func fieldNames(s *registry.Schema) []string {
	var names []string
	for _, f := range s.Fields {
		names = append(names, f.Name)
	}
	return names
}
