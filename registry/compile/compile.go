// Package compile turns openapi/native.yaml into the registry's index. It runs
// under go generate and in tests, never in the product: what it accepts needs no
// check at run time. docs/x-abx.md describes the extension that it reads.
package compile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"navix.sh/agentbox/registry"
)

// yamlLine finds the line in the parser's message.
var yamlLine = regexp.MustCompile(`line (\d+)`)

// Compile compiles a document. The error joins everything that is wrong with it,
// each as file:line: message.
func Compile(file string, data []byte) (*registry.Index, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		line := "1"
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			line = m[1]
		}
		return nil, fmt.Errorf("%s:%s: %w", file, line, err)
	}
	if root.Kind != yaml.DocumentNode || root.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:1: not an OpenAPI document", file)
	}
	d := &document{file: file, root: root.Content[0], used: map[*yaml.Node]bool{}}
	d.expandAliases(d.root, nil)
	if len(d.problems) > 0 { // an alias inside its own anchor has no end
		return nil, errors.Join(d.problems...)
	}
	d.duplicateKeys(d.root)
	ix := d.index()
	d.misplaced(d.root, "")
	if len(d.problems) > 0 {
		return nil, errors.Join(d.problems...)
	}
	return ix, nil
}

func (d *document) index() *registry.Index {
	ix := &registry.Index{SpecVersion: text(get(get(d.root, "info"), "version"))}
	if ix.SpecVersion == "" {
		d.failf(d.root, "info.version is missing: it is the spec version that the program reports")
	}
	if x := d.xabx(d.root, "the document", "docsBase"); x != nil {
		ix.DocsBase = text(get(x, "docsBase"))
	}
	ix.Schemas = d.schemas()
	slices.SortFunc(ix.Schemas, func(a, b registry.Schema) int { return strings.Compare(a.Name, b.Name) })
	ops := d.operations()
	for _, op := range ops {
		ix.Operations = append(ix.Operations, op.Operation)
	}
	d.resources(ix)
	d.checkEditing(ix, ops)
	return ix
}

// xabx returns the x-abx mapping of a node after checking its keys, or nil.
func (d *document) xabx(n *yaml.Node, where string, keys ...string) *yaml.Node {
	x := get(n, "x-abx")
	if x == nil {
		return nil
	}
	if !d.used[x] {
		d.known(x, "x-abx of "+where, keys...)
	}
	d.used[x] = true
	return x
}

// misplaced reports extensions that nothing reads.
func (d *document) misplaced(n *yaml.Node, parent string) {
	if parent == "example" || parent == "value" || parent == "default" {
		return
	}
	for _, p := range pairs(n) {
		name := p.key.Value
		isName := parent == "properties" || parent == "schemas" || parent == "headers" || parent == "parameters"
		switch {
		case isName || !strings.HasPrefix(name, "x-"):
		case name != "x-abx":
			d.failf(p.key, "unknown extension %q: only x-abx is read", name)
		case !d.used[p.value]:
			d.failf(p.key, "x-abx has no meaning here")
		}
		if name != "x-abx" {
			next := name
			if isName {
				next = ""
			}
			d.misplaced(p.value, next)
		}
	}
	for _, item := range items(n) {
		d.misplaced(item, "")
	}
}

// expandAliases puts what a YAML alias stands for in its place.
func (d *document) expandAliases(n *yaml.Node, inside []*yaml.Node) {
	for i, child := range n.Content {
		if child.Kind == yaml.AliasNode {
			if slices.Contains(inside, child.Alias) || child.Alias == n {
				d.failf(child, "alias %s stands inside its own anchor", child.Value)
				return
			}
			child = child.Alias
			n.Content[i] = child
		}
		d.expandAliases(child, append(slices.Clip(inside), n))
	}
}

// duplicateKeys reports keys that a mapping has twice: the second would win in silence.
func (d *document) duplicateKeys(n *yaml.Node) {
	seen := map[string]int{}
	for _, p := range pairs(n) {
		if line, ok := seen[p.key.Value]; ok {
			d.failf(p.key, "key %q stands on line %d already", p.key.Value, line)
		}
		seen[p.key.Value] = p.key.Line
	}
	for _, child := range n.Content {
		d.duplicateKeys(child)
	}
}

// checkEditing holds what can be read and replaced to the precondition that
// prevents lost updates: the read answers an ETag, the write takes If-Match.
func (d *document) checkEditing(ix *registry.Index, ops []*operation) {
	for i := range ix.Resources {
		r := &ix.Resources[i]
		if r.Item == nil {
			continue
		}
		read := ix.Operation(r.Item.Operation)
		for _, v := range r.Verbs {
			if v.Name == "create" {
				continue
			}
			write := ops[slices.IndexFunc(ops, func(o *operation) bool { return o.ID == v.Operation })]
			if write.Header("If-Match") == nil {
				d.failf(write.node, "%s %ss one %s and does not take If-Match", write.ID, v.Name, r.Kind)
			}
			if ok := read.Response(200); ok == nil || !slices.Contains(ok.Headers, "ETag") {
				d.failf(write.node, "%s reads what %s %ss and answers no ETag", read.ID, write.ID, v.Name)
			}
		}
	}
}
