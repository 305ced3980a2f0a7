package compile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"navix.sh/agentbox/registry"
)

// resolve walks a path through schemas; it reports a path that names no field.
func (c *resourceCompiler) resolve(at *yaml.Node, s *registry.Schema, path, what string) (registry.Schema, bool) {
	none := registry.Schema{Type: registry.TypeAny}
	names, err := registry.SplitPath(path)
	if err != nil {
		c.failf(at, "%s: %v", what, err)
		return none, false
	}
	current := *s
	for _, name := range names {
		object := c.ix.Deref(&current)
		if object == nil {
			return none, false
		}
		if f := object.Field(name); f != nil {
			current = f.Schema
			continue
		}
		if object.Elem != nil && object.Type != registry.TypeArray {
			current = *object.Elem
			continue
		}
		where := object.Name
		if where == "" {
			where = "the " + object.Type + " before it"
		}
		c.failf(at, "%s %q: %q names no field of %s%s; its fields: %s", what, path, name, where,
			nearest(name, fieldNames(object)), strings.Join(fieldNames(object), ", "))
		return none, false
	}
	resolved := *c.ix.Deref(&current)
	if current.Describe != "" {
		resolved.Describe = current.Describe
	}
	return resolved, true
}

// value reads an entry of columns, detail or texts: a word that is id and path at
// once, or a mapping.
func (c *resourceCompiler) value(n *yaml.Node, s *registry.Schema, what string, keys ...string) (id, path string, schema registry.Schema) {
	id = text(n)
	path = id
	if n.Kind == yaml.MappingNode {
		c.known(n, what, keys...)
		id = text(get(n, "id"))
		if path = text(get(n, "path")); path == "" {
			path = id
		}
	}
	if id == "" {
		c.failf(n, "a %s needs an id", what)
		return "", "", schema
	}
	if get(n, "derived") != nil {
		return id, "", registry.Schema{Type: registry.TypeAny}
	}
	if s == nil {
		return id, path, registry.Schema{Type: registry.TypeAny}
	}
	schema, _ = c.resolve(n, s, path, what)
	return id, path, schema
}

func describe(n *yaml.Node, s registry.Schema) string {
	if own := text(get(n, "describe")); own != "" {
		return own
	}
	return s.Describe
}

// detailSchema is what detail lines name fields of.
func (c *resourceCompiler) detailSchema() *registry.Schema {
	if c.item == nil {
		c.failf(c.node, "resource %s has detail fields and no item that can be read", c.r.Plural)
	}
	return c.item
}

func (c *resourceCompiler) columns(n *yaml.Node) {
	seen := map[string]bool{}
	for _, entry := range items(n) {
		if c.r.List != nil && c.r.List.Scalar {
			c.r.Columns = append(c.r.Columns, registry.Column{ID: text(entry), Type: registry.TypeString, Describe: "The name."})
			continue
		}
		id, path, schema := c.value(entry, c.row, "column", "id", "path", "wide", "derived", "describe", "else")
		col := registry.Column{ID: id, Path: path, Type: schema.Type, Describe: describe(entry, schema),
			Wide: truth(get(entry, "wide")), Derived: text(get(entry, "derived")), Else: strs(get(entry, "else"))}
		for _, other := range col.Else {
			c.resolve(entry, c.row, other, "column")
		}
		if col.Derived != "" && !slices.Contains(registry.Derivations, col.Derived) {
			c.failf(entry, "derivation %q is not known%s; known: %s", col.Derived, nearest(col.Derived, registry.Derivations), strings.Join(registry.Derivations, ", "))
		}
		if seen[id] {
			c.failf(entry, "column %s stands there twice", id)
		}
		if col.Describe == "" {
			c.failf(entry, "column %s has no description, neither here nor in its schema", id)
		}
		seen[id] = true
		c.r.Columns = append(c.r.Columns, col)
	}
	if len(c.r.Columns) == 0 {
		c.failf(c.node, "resource %s has no columns", c.r.Plural)
	}
	if l := c.r.List; l != nil && l.ExpandKey != "" && !seen[l.ExpandKey] {
		c.failf(get(c.node, "list"), "expandKey %q is no column", l.ExpandKey)
	}
}

// filters reads filter keys. A key is a column id; its closed set is the enum of
// the field, its parameter the query parameter of the same name.
func (c *resourceCompiler) filters(n *yaml.Node) {
	if c.r.List == nil || c.row == nil {
		return
	}
	op := c.ix.Operation(c.r.List.Operation)
	for _, entry := range items(n) {
		f := registry.Filter{Key: text(entry)}
		col := c.r.Column(f.Key)
		if col == nil {
			c.failf(entry, "filter %q is no column%s", f.Key, nearest(f.Key, c.columnIDs()))
			continue
		}
		if slices.Contains(registry.QueryParams, f.Key) {
			c.failf(entry, "filter %q clashes with the query parameter that every list has", f.Key)
			continue
		}
		f.Path, f.Describe = col.Path, col.Describe
		if col.Derived == "" && !c.r.List.Scalar {
			schema, _ := c.resolve(entry, c.row, col.Path, "filter")
			f.Values = closedSet(&schema)
		}
		param := op.QueryParam(f.Key)
		if param == nil {
			if col.Derived == "" {
				c.failf(entry, "filter %q does not travel: %s has no query parameter of that name", f.Key, op.ID)
			}
		} else {
			f.Param = param.Name
			c.sameSet(entry, op, &f, closedSet(&param.Schema))
		}
		c.r.Filters = append(c.r.Filters, f)
	}
}

// sameSet compares the closed set of a field with that of the query parameter.
func (c *resourceCompiler) sameSet(at *yaml.Node, op *registry.Operation, f *registry.Filter, param []string) {
	if !slices.Equal(f.Values, param) {
		c.failf(at, "filter %q: the field allows %v, the parameter of %s allows %v", f.Key, f.Values, op.ID, param)
	}
}

// closedSet is the set of values that a field can have; an array's is its elements'.
func closedSet(s *registry.Schema) []string {
	switch {
	case s.Type == registry.TypeBoolean:
		return []string{"true", "false"}
	case len(s.Enum) > 0:
		return s.Enum
	case s.Type == registry.TypeArray && s.Elem != nil:
		return closedSet(s.Elem)
	}
	return nil
}

func (c *resourceCompiler) columnIDs() []string {
	var ids []string
	for _, col := range c.r.Columns {
		ids = append(ids, col.ID)
	}
	return ids
}
