package compile

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"navix.sh/agentbox/registry"
)

// document is the parsed YAML with the problems found so far. Compilation goes on
// after a problem, so that one run reports all of them.
type document struct {
	file     string
	root     *yaml.Node
	problems []error
	// used are the x-abx nodes that were read; any other is misplaced.
	used map[*yaml.Node]bool
}

func (d *document) failf(at *yaml.Node, format string, args ...any) {
	line := 0
	if at != nil {
		line = at.Line
	}
	d.problems = append(d.problems, fmt.Errorf("%s:%d: %s", d.file, line, fmt.Sprintf(format, args...)))
}

// get returns the value of a key of a mapping, or nil.
func get(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// pair is one key of a mapping with its value, in document order.
type pair struct {
	key   *yaml.Node
	value *yaml.Node
}

func pairs(n *yaml.Node) []pair {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	out := make([]pair, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, pair{n.Content[i], n.Content[i+1]})
	}
	return out
}

func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return strings.TrimSpace(n.Value)
}

func truth(n *yaml.Node) bool { return n != nil && n.Tag == "!!bool" && n.Value == "true" }

func strs(n *yaml.Node) []string {
	var out []string
	for _, item := range items(n) {
		out = append(out, text(item))
	}
	return out
}

// jsonOf renders a node as compact JSON without HTML escapes.
func (d *document) jsonOf(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	var v any
	if err := n.Decode(&v); err != nil {
		d.failf(n, "not a value that JSON can hold: %v", err)
		return ""
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		d.failf(n, "not a value that JSON can hold: %v", err)
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// deref follows a $ref within the document; any other node is returned as it is.
// The name is the last segment of the first reference.
func (d *document) deref(n *yaml.Node) (target *yaml.Node, name string) {
	seen := map[*yaml.Node]bool{}
	for {
		ref := get(n, "$ref")
		if ref == nil {
			return n, name
		}
		if seen[n] {
			d.failf(ref, "$ref %s refers to itself", ref.Value)
			return nil, name
		}
		seen[n] = true
		path, local := strings.CutPrefix(ref.Value, "#/")
		target := d.root
		for _, segment := range strings.Split(path, "/") {
			target = get(target, strings.NewReplacer("~1", "/", "~0", "~").Replace(segment))
		}
		if !local || target == nil {
			d.failf(ref, "$ref %s is not in this document", ref.Value)
			return nil, name
		}
		if name == "" {
			name = path[strings.LastIndex(path, "/")+1:]
		}
		n = target
	}
}

// known reports keys of a mapping that are not in the list.
func (d *document) known(n *yaml.Node, what string, keys ...string) {
	if n != nil && n.Kind != yaml.MappingNode {
		d.failf(n, "%s must be a mapping", what)
		return
	}
	for _, p := range pairs(n) {
		if !contains(keys, p.key.Value) {
			d.failf(p.key, "unknown key %q in %s%s; known: %s", p.key.Value, what,
				nearest(p.key.Value, keys), strings.Join(keys, ", "))
		}
	}
}

func nearest(word string, names []string) string {
	if s := registry.Suggest(word, names); s != "" {
		return fmt.Sprintf(" (did you mean %q?)", s)
	}
	return ""
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
