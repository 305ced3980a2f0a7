package registry

import (
	"slices"
	"strings"
)

// Roots returns the resources that stand at the top level, in registry order.
func (ix *Index) Roots() []*Resource {
	var roots []*Resource
	for i := range ix.Resources {
		if ix.Resources[i].Parent == "" {
			roots = append(roots, &ix.Resources[i])
		}
	}
	return roots
}

// Find returns the resource with the given plural at any level, or nil.
func (ix *Index) Find(plural string) *Resource {
	for i := range ix.Resources {
		if ix.Resources[i].Plural == plural {
			return &ix.Resources[i]
		}
	}
	return nil
}

// Child returns the child of parent with the given plural, or nil.
func (ix *Index) Child(parent *Resource, plural string) *Resource {
	if r := ix.Find(plural); r != nil && parent != nil && r.Parent == parent.Plural {
		return r
	}
	return nil
}

// ByKind returns the resource of the given kind, or nil.
func (ix *Index) ByKind(kind string) *Resource {
	for i := range ix.Resources {
		if ix.Resources[i].Kind == kind {
			return &ix.Resources[i]
		}
	}
	return nil
}

// Operation returns the operation with the given id, or nil.
func (ix *Index) Operation(id string) *Operation {
	i, ok := slices.BinarySearchFunc(ix.Operations, id, func(o Operation, id string) int { return strings.Compare(o.ID, id) })
	if !ok {
		return nil
	}
	return &ix.Operations[i]
}

// Schema returns the named component, or nil.
func (ix *Index) Schema(name string) *Schema {
	i, ok := slices.BinarySearchFunc(ix.Schemas, name, func(s Schema, name string) int { return strings.Compare(s.Name, name) })
	if !ok {
		return nil
	}
	return &ix.Schemas[i]
}

// Deref follows s.Ref to the component, and returns s itself when it is inline.
func (ix *Index) Deref(s *Schema) *Schema {
	if s.Ref == "" {
		return s
	}
	return ix.Schema(s.Ref)
}

// Verb returns the resource's verb of that name, or nil.
func (r *Resource) Verb(name string) *Verb {
	for i := range r.Verbs {
		if r.Verbs[i].Name == name {
			return &r.Verbs[i]
		}
	}
	return nil
}

// Action returns the resource's action of that name, or nil.
func (r *Resource) Action(name string) *Action {
	for i := range r.Actions {
		if r.Actions[i].Name == name {
			return &r.Actions[i]
		}
	}
	return nil
}

// View returns the resource's view of that name, or nil.
func (r *Resource) View(name string) *View {
	for i := range r.Views {
		if r.Views[i].Name == name {
			return &r.Views[i]
		}
	}
	return nil
}

// Column returns the column with the given id, or nil.
func (r *Resource) Column(id string) *Column {
	for i := range r.Columns {
		if r.Columns[i].ID == id {
			return &r.Columns[i]
		}
	}
	return nil
}

// Filter returns the filter with the given key, or nil.
func (r *Resource) Filter(key string) *Filter {
	for i := range r.Filters {
		if r.Filters[i].Key == key {
			return &r.Filters[i]
		}
	}
	return nil
}

// QueryParam returns the declared query parameter of that name, or nil.
func (o *Operation) QueryParam(name string) *Param {
	for i := range o.Query {
		if o.Query[i].Name == name {
			return &o.Query[i]
		}
	}
	return nil
}

// Header returns the declared request header of that name (spelt as in the document), or nil.
func (o *Operation) Header(name string) *Param {
	for i := range o.Headers {
		if o.Headers[i].Name == name {
			return &o.Headers[i]
		}
	}
	return nil
}

// Response returns the declared answer with that status, or nil.
func (o *Operation) Response(status int) *Response {
	for i := range o.Responses {
		if o.Responses[i].Status == status {
			return &o.Responses[i]
		}
	}
	return nil
}

// Success returns the declared answer of a call that did its work: the lowest
// 2xx status that is not the answer of a dry run.
func (o *Operation) Success() *Response {
	for i := range o.Responses {
		if r := &o.Responses[i]; r.Status >= 200 && r.Status < 300 && r.Schema != DryRunSchema {
			return r
		}
	}
	return nil
}

// DryRunSchema is the component that answers a write with dryRun=true.
const DryRunSchema = "DryRunResult"

// Field returns the property of that name, or nil.
func (s *Schema) Field(name string) *Field {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return &s.Fields[i]
		}
	}
	return nil
}
