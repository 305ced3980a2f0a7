package cli

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// shape is a schema as --schema and agent-context show it.
type shape struct {
	Schema   string                 `json:"schema"`
	Describe string                 `json:"describe,omitempty"`
	Example  json.RawMessage        `json:"example,omitempty"`
	Columns  []string               `json:"columns,omitempty"`
	Filters  []filterInfo           `json:"filters,omitempty"`
	Fields   []fieldInfo            `json:"fields,omitempty"`
	Schemas  map[string][]fieldInfo `json:"schemas,omitempty"`
}

// fieldInfo is one property of a shape.
type fieldInfo struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Required bool     `json:"required,omitempty"`
	Fixed    bool     `json:"fixed,omitempty"` // set at create, never changed
	Lever    string   `json:"lever,omitempty"` // what to do instead of changing it
	Values   []string `json:"values,omitempty"`
	Format   string   `json:"format,omitempty"`
	Pattern  string   `json:"pattern,omitempty"`
	Default  string   `json:"default,omitempty"`
	Describe string   `json:"describe,omitempty"`
	Ref      string   `json:"ref,omitempty"` // component below "schemas"
}

// filterInfo is one filter of a list.
type filterInfo struct {
	Key    string   `json:"key"`
	Values []string `json:"values,omitempty"`
}

// printBodySchema prints what the body of a write looks like.
func (a *App) printBodySchema(cmd *cobra.Command, op *registry.Operation) error {
	s := a.shapeOf(op.Request.Schema)
	if json.Valid([]byte(op.Request.Example)) {
		s.Example = json.RawMessage(op.Request.Example)
	}
	return a.printShape(cmd, s)
}

// printReadSchema prints what a read answers with.
func (a *App) printReadSchema(cmd *cobra.Command, addr registry.Address) error {
	r := addr.Resource
	if addr.View != nil {
		s := a.answerSchema(addr.View.Operation)
		if s == nil {
			return clierr.New(clierr.Unsupported, "the view %s has no shape: only the console shows it", addr.View.Name)
		}
		return a.printShape(cmd, a.shapeOf(s.Name))
	}
	if !addr.Collection() {
		if item := a.itemSchema(r); item != nil {
			return a.printShape(cmd, a.shapeFrom(item))
		}
	}
	s := shape{Schema: r.Plural}
	if rows := a.rowSchema(r); rows != nil {
		s = a.shapeFrom(rows)
	}
	s.Describe = r.Summary
	for _, c := range r.Columns {
		s.Columns = append(s.Columns, c.ID)
	}
	s.Filters = filterInfos(r)
	return a.printShape(cmd, s)
}

// printShape prints a shape, or what --jq or --fields takes of it.
func (a *App) printShape(cmd *cobra.Command, s shape) error {
	p, err := a.printing(cmd)
	switch {
	case err != nil:
		return err
	case p.query == nil && p.fields == nil && (p.format == output.Table || p.format == output.JSON):
		return output.WriteIndented(a.Out, s)
	case p.query == nil && p.format == output.Table:
		p.format = output.JSON // a shape is no table
	}
	return a.local(cmd.Context(), p, s, "")
}

func filterInfos(r *registry.Resource) []filterInfo {
	var list []filterInfo
	for _, f := range r.Filters {
		list = append(list, filterInfo{f.Key, f.Values})
	}
	return list
}

// bodyAddresses are the writes that take a file.
func (a *App) bodyAddresses() []string {
	var list []string
	for i := range a.Index.Resources {
		r := &a.Index.Resources[i]
		if r.Verb("create") != nil {
			list = append(list, "abx create "+a.Index.Form(r))
		}
		if r.Verb("update") != nil {
			list = append(list, "abx update "+a.Index.ItemForm(r))
		}
	}
	return list
}

// shapeOf is the shape of a component with every component that it uses.
func (a *App) shapeOf(component string) shape { return a.shapeFrom(a.Index.Schema(component)) }

func (a *App) shapeFrom(s *registry.Schema) shape {
	out := shape{Schema: s.Name, Describe: s.Describe, Fields: a.fieldInfos(s)}
	if out.Schema == "" {
		out.Schema = typeName(s)
	}
	schemas := map[string][]fieldInfo{}
	a.collect(out.Fields, schemas)
	delete(schemas, s.Name)
	if len(schemas) > 0 {
		out.Schemas = schemas
	}
	return out
}

// collect adds the components that the fields refer to, each once, so that recursive shapes end.
func (a *App) collect(fields []fieldInfo, into map[string][]fieldInfo) {
	for _, f := range fields {
		if f.Ref == "" {
			continue
		}
		if _, done := into[f.Ref]; done {
			continue
		}
		component := a.Index.Schema(f.Ref)
		if component == nil {
			continue
		}
		into[f.Ref] = a.fieldInfos(component)
		a.collect(into[f.Ref], into)
	}
}

func (a *App) fieldInfos(s *registry.Schema) []fieldInfo {
	infos := []fieldInfo{}
	for i := range s.Fields {
		f := &s.Fields[i]
		info := fieldInfo{
			Name: f.Name, Type: typeName(&f.Schema), Required: f.Required, Fixed: f.Fixed, Lever: f.Lever,
			Values: enumOf(&f.Schema), Format: formatOf(&f.Schema), Pattern: f.Schema.Pattern, Default: f.Schema.Default, Describe: f.Schema.Describe,
			Ref: refOf(&f.Schema),
		}
		if info.Values != nil {
			info.Type = strings.Join(info.Values, " | ")
			if f.Schema.Type == registry.TypeArray {
				info.Type = "(" + info.Type + ")[]"
			}
		}
		infos = append(infos, info)
	}
	return infos
}

// typeName names a type in a few letters: string, int, number, bool, object, any,
// X[], map[string]X or a component.
func typeName(s *registry.Schema) string {
	if s.Ref != "" {
		return s.Ref
	}
	switch s.Type {
	case registry.TypeInteger:
		return "int"
	case registry.TypeBoolean:
		return "bool"
	case registry.TypeArray:
		if s.Elem != nil {
			return typeName(s.Elem) + "[]"
		}
		return "any[]"
	case registry.TypeMap:
		if s.Elem != nil {
			return "map[string]" + typeName(s.Elem)
		}
		return "map[string]any"
	case registry.TypeOneOf:
		var names []string
		for i := range s.OneOf {
			names = append(names, typeName(&s.OneOf[i]))
		}
		return strings.Join(names, " | ")
	case "":
		return "any"
	}
	return s.Type
}

// refOf is the component that a value is, or is made of; empty when it is inline.
func refOf(s *registry.Schema) string {
	if s.Ref != "" || s.Elem == nil {
		return s.Ref
	}
	return refOf(s.Elem)
}

func enumOf(s *registry.Schema) []string {
	if s.Type == registry.TypeArray && s.Elem != nil {
		return s.Elem.Enum
	}
	return s.Enum
}

// formatOf is the format of a string, such as date-time; the sizes of numbers say nothing to a writer.
func formatOf(s *registry.Schema) string {
	if s.Type != registry.TypeString {
		return ""
	}
	return s.Format
}
