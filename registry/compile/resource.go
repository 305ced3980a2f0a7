package compile

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"navix.sh/agentbox/registry"
)

var resourceKeys = []string{
	"kind", "parent", "platform", "gate", "console", "docs", "note", "list", "item", "columns", "filters",
	"detail", "texts", "tables", "verbs", "actions", "views", "examples",
}

// resources compiles the tags that carry x-abx, in document order, which is the
// order of help.
func (d *document) resources(ix *registry.Index) {
	tags := map[string]bool{}
	nodes := map[string]*yaml.Node{}
	for _, tag := range items(get(d.root, "tags")) {
		name := text(get(tag, "name"))
		tags[name] = true
		x := d.xabx(tag, "a tag", resourceKeys...)
		if x == nil {
			continue
		}
		if nodes[name] != nil {
			d.failf(get(tag, "name"), "resource %s stands on line %d already", name, nodes[name].Line)
			continue
		}
		nodes[name] = x
		c := &resourceCompiler{document: d, ix: ix, node: x}
		c.compile(name, tag)
		ix.Resources = append(ix.Resources, c.r)
	}
	for _, p := range pairs(get(d.root, "paths")) {
		for _, op := range pairs(p.value) {
			for _, tag := range items(get(op.value, "tags")) {
				if !tags[tag.Value] {
					d.failf(tag, "tag %q is not declared", tag.Value)
				}
			}
		}
	}
	d.checkTree(ix, nodes)
	if len(d.problems) == 0 {
		d.checkExamples(ix, nodes)
	}
}

// resourceCompiler compiles one tag.
type resourceCompiler struct {
	*document
	ix   *registry.Index
	node *yaml.Node
	r    registry.Resource
	row  *registry.Schema // of the list; nil when there is none
	item *registry.Schema // of the item; nil when there is none
}

func (c *resourceCompiler) compile(name string, tag *yaml.Node) {
	r := &c.r
	r.Plural, r.Kind, r.Parent = name, text(get(c.node, "kind")), text(get(c.node, "parent"))
	r.Summary, r.Describe, _ = strings.Cut(text(get(tag, "description")), "\n")
	r.Describe = strings.TrimSpace(r.Describe)
	r.Note, r.Gate = text(get(c.node, "note")), text(get(c.node, "gate"))
	r.Platform, r.Console, r.Docs = truth(get(c.node, "platform")), text(get(c.node, "console")), text(get(c.node, "docs"))
	if r.Kind == "" || r.Summary == "" {
		c.failf(c.node, "resource %s needs a kind and a description", name)
	}
	if gates := c.ix.Schema("FeatureGates"); r.Gate != "" && (gates == nil || gates.Field(r.Gate) == nil) {
		c.failf(get(c.node, "gate"), "gate %q is no property of FeatureGates", r.Gate)
	}
	c.list(get(c.node, "list"))
	c.readItem(get(c.node, "item"))
	c.columns(get(c.node, "columns"))
	c.filters(get(c.node, "filters"))
	for _, n := range items(get(c.node, "detail")) {
		id, path, schema := c.value(n, c.detailSchema(), "detail", "id", "path", "describe")
		r.Detail = append(r.Detail, registry.Detail{ID: id, Path: path, Type: schema.Type, Describe: describe(n, schema)})
	}
	for _, n := range items(get(c.node, "texts")) {
		id, path, schema := c.value(n, c.detailSchema(), "text", "id", "path", "describe")
		if schema.Type != registry.TypeString {
			c.failf(n, "text %s is of type %s; only a string is printed whole", id, schema.Type)
		}
		r.Texts = append(r.Texts, registry.TextBlock{ID: id, Path: path, Describe: describe(n, schema)})
	}
	r.Tables = strs(get(c.node, "tables"))
	c.verbs(get(c.node, "verbs"))
	c.actions(get(c.node, "actions"))
	for _, n := range items(get(c.node, "views")) {
		c.view(n)
	}
	for _, n := range items(get(c.node, "examples")) {
		command, why, _ := strings.Cut(n.Value, " # ")
		r.Examples = append(r.Examples, registry.Example{Command: strings.TrimSpace(command), Describe: strings.TrimSpace(why)})
	}
	if len(r.Examples) == 0 {
		c.failf(c.node, "resource %s has no example", name)
	}
}

// operationOf looks an operation up and checks its method and that its path has
// as many places as the address has ids.
func (c *resourceCompiler) operationOf(n *yaml.Node, method string, item bool) *registry.Operation {
	op := c.ix.Operation(text(n))
	if op == nil {
		at := n
		if at == nil {
			at = c.node
		}
		c.failf(at, "operation %q is not in the document%s", text(n), nearest(text(n), c.operationIDs()))
		return nil
	}
	if op.Method != method {
		c.failf(n, "%s is a %s; a %s is needed here", op.ID, op.Method, method)
	}
	ids := 0
	if item {
		ids++
	}
	if c.r.Parent != "" {
		ids++
	}
	if len(op.PathParams) != ids {
		c.failf(n, "%s has %d path parameters; the address has %d ids", op.ID, len(op.PathParams), ids)
	}
	return op
}

func (c *resourceCompiler) operationIDs() []string {
	var ids []string
	for _, op := range c.ix.Operations {
		ids = append(ids, op.ID)
	}
	return ids
}

// success is the shape that an operation answers with.
func (c *resourceCompiler) success(op *registry.Operation) *registry.Schema {
	if r := op.Success(); r != nil {
		return c.ix.Schema(r.Schema)
	}
	return nil
}

func (c *resourceCompiler) list(n *yaml.Node) {
	if n == nil {
		return
	}
	c.known(n, "list", "operation", "rows", "total", "id", "expand", "expandKey")
	op := c.operationOf(get(n, "operation"), "GET", false)
	if op == nil {
		return
	}
	l := &registry.List{Operation: op.ID, Rows: text(get(n, "rows")), Total: text(get(n, "total")), ID: text(get(n, "id")),
		Expand: text(get(n, "expand")), ExpandKey: text(get(n, "expandKey"))}
	c.r.List, c.r.Admin = l, op.Admin
	envelope := c.success(op)
	if envelope == nil {
		c.failf(n, "%s answers nothing that has rows", op.ID)
		return
	}
	c.rows(n, l, envelope)
	if l.Total == "" && envelope.Field("total") != nil && l.Rows != "" && !l.Single {
		l.Total = "total"
	} else if l.Total != "" && envelope.Field(l.Total) == nil {
		c.failf(get(n, "total"), "total %q names no field of %s%s", l.Total, envelope.Name, nearest(l.Total, fieldNames(envelope)))
	}
	if r := op.Success(); contains(r.Headers, "X-Total-Count") {
		l.TotalHeader = "X-Total-Count"
	}
	if limit := op.QueryParam("limit"); limit != nil && op.QueryParam("offset") != nil {
		l.Paged = true
		if limit.Schema.Limits == nil || limit.Schema.Limits.Max == nil {
			c.failf(n, "%s: limit has no maximum, so that no client knows how to read all rows", op.ID)
		} else {
			l.MaxLimit = int(*limit.Schema.Limits.Max)
		}
	}
	if !l.Single && (!l.Paged || l.Total == "" && l.TotalHeader == "") {
		c.failf(n, "%s needs limit, offset and a total, so that a list is read whole", op.ID)
	}
	l.Watch = op.QueryParam("watch") != nil
	if r := op.Success(); l.Watch != r.Stream {
		c.failf(n, "%s: watch and an answer of text/event-stream go together", op.ID)
	}
	if l.ID != "" && c.row != nil {
		c.resolve(get(n, "id"), c.row, l.ID, "id")
	}
	if l.Expand != "" && c.row != nil {
		maps, _ := c.resolve(get(n, "expand"), c.row, l.Expand, "expand")
		for _, f := range c.ix.Deref(&maps).Fields {
			if f.Schema.Type != registry.TypeMap {
				c.failf(get(n, "expand"), "expand %q: its field %s is no map", l.Expand, f.Name)
			}
		}
	}
}

// rows finds the shape of a row in the envelope.
func (c *resourceCompiler) rows(n *yaml.Node, l *registry.List, envelope *registry.Schema) {
	at := *envelope
	if l.Rows != "" {
		f := envelope.Field(l.Rows)
		if f == nil {
			c.failf(get(n, "rows"), "rows %q names no field of %s%s", l.Rows, envelope.Name, nearest(l.Rows, fieldNames(envelope)))
			return
		}
		at = f.Schema
	}
	row := c.ix.Deref(&at)
	if row == nil {
		return
	}
	switch row.Type {
	case registry.TypeObject:
		l.Single = true
	case registry.TypeArray:
		row = c.ix.Deref(row.Elem)
	default:
		c.failf(n, "rows are of type %s; an array, or one object, is needed", row.Type)
		return
	}
	l.Scalar = row.Type == registry.TypeString
	c.row = row
}

func (c *resourceCompiler) readItem(n *yaml.Node) {
	if n == nil {
		return
	}
	c.known(n, "item", "operation", "unwrap", "editable")
	op := c.operationOf(get(n, "operation"), "GET", true)
	if op == nil {
		return
	}
	it := &registry.Item{Operation: op.ID, Unwrap: text(get(n, "unwrap")), Editable: text(get(n, "editable"))}
	c.r.Item = it
	envelope := c.success(op)
	if envelope == nil {
		c.failf(n, "%s answers nothing", op.ID)
		return
	}
	c.item = envelope
	for _, key := range []string{"unwrap", "editable"} {
		name := text(get(n, key))
		if name == "" {
			continue
		}
		f := envelope.Field(name)
		if f == nil {
			c.failf(get(n, key), "%s %q names no field of %s%s", key, name, envelope.Name, nearest(name, fieldNames(envelope)))
			continue
		}
		if key == "unwrap" {
			c.item = c.ix.Deref(&f.Schema)
		}
	}
}
