package compile

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"navix.sh/agentbox/registry"
)

var (
	wordPattern = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	slugPattern = regexp.MustCompile(`^[a-z0-9-]+(/[a-z0-9-]+)*$`)
)

// checkTree checks names and the relations between resources, and fills in the
// children.
func (d *document) checkTree(ix *registry.Index, nodes map[string]*yaml.Node) {
	kinds := map[string]string{}
	for i := range ix.Resources {
		r := &ix.Resources[i]
		at := nodes[r.Plural]
		d.checkWord(at, "resource", r.Plural)
		d.checkWord(at, "kind", r.Kind)
		if other, ok := kinds[r.Kind]; ok {
			d.failf(at, "kind %q is %s's already", r.Kind, other)
		}
		kinds[r.Kind] = r.Plural
		if r.Docs != "" && !slugPattern.MatchString(r.Docs) {
			d.failf(get(at, "docs"), "docs %q is no slug like concepts/envs", r.Docs)
		}
		d.checkParent(ix, i, at)
	}
	for i := range ix.Resources {
		r := &ix.Resources[i]
		at := nodes[r.Plural]
		for _, table := range r.Tables {
			if ix.Child(r, table) == nil {
				d.failf(get(at, "tables"), "table %q is no child of %s%s", table, r.Plural, nearest(table, r.Children))
			}
		}
		if other := kinds[r.Plural]; other != "" && other != r.Plural {
			d.failf(at, "resource %q is also the kind of %s", r.Plural, other)
		}
		d.checkWords(ix, r, at)
	}
}

// checkParent makes r a child of its parent. An address has room for two levels,
// and a parent stands before its children.
func (d *document) checkParent(ix *registry.Index, i int, at *yaml.Node) {
	r := &ix.Resources[i]
	if r.Parent == "" {
		return
	}
	for j := range ix.Resources[:i] {
		parent := &ix.Resources[j]
		if parent.Plural != r.Parent {
			continue
		}
		if parent.Parent != "" {
			d.failf(get(at, "parent"), "%s stands below %s, which is a child itself: an address has two levels", r.Plural, r.Parent)
		}
		parent.Children = append(parent.Children, r.Plural)
		return
	}
	d.failf(get(at, "parent"), "parent %q is no resource that stands before %s", r.Parent, r.Plural)
}

// checkWords checks the views and actions of a resource against everything else
// that can be typed in their place.
func (d *document) checkWords(ix *registry.Index, r *registry.Resource, at *yaml.Node) {
	seen := map[string]string{}
	for _, child := range r.Children {
		seen[child] = "child"
	}
	for _, v := range r.Views {
		d.checkWord(at, "view", v.Name)
		if what := seen[v.Name]; what != "" {
			d.failf(get(at, "views"), "view %q of %s is the name of a %s", v.Name, r.Plural, what)
		}
		seen[v.Name] = "view"
	}
	actions := map[string]bool{}
	for _, a := range r.Actions {
		d.checkWord(at, "action", a.Name)
		if ix.Find(a.Name) != nil {
			d.failf(get(at, "actions"), "action %q is the name of a resource", a.Name)
		}
		if actions[a.Name] {
			d.failf(get(at, "actions"), "action %q stands there twice", a.Name)
		}
		actions[a.Name] = true
	}
}

func (d *document) checkWord(at *yaml.Node, what, word string) {
	if !wordPattern.MatchString(word) {
		d.failf(at, "%s %q is no word of lower-case letters, digits and single hyphens", what, word)
	}
	if contains(registry.Reserved(), word) {
		d.failf(at, "%s %q is reserved for the command line", what, word)
	}
}

// checkExamples parses the example commands: a resource or view that is not there
// fails here and not before a reader.
func (d *document) checkExamples(ix *registry.Index, nodes map[string]*yaml.Node) {
	for i := range ix.Resources {
		r := &ix.Resources[i]
		for _, e := range r.Examples {
			if why := exampleProblem(ix, r, e.Command); why != "" {
				d.failf(get(nodes[r.Plural], "examples"), "example %q: %s", e.Command, why)
			}
		}
	}
}

func exampleProblem(ix *registry.Index, r *registry.Resource, command string) string {
	words := strings.Fields(command)
	if len(words) == 0 || words[0] != "abx" {
		return "it does not begin with abx"
	}
	words = words[1:]
	verb := ""
	if len(words) > 0 && (contains(registry.Verbs, words[0]) || contains(ix.ActionNames(), words[0])) {
		verb, words = words[0], words[1:]
	}
	for i, w := range words {
		if strings.HasPrefix(w, "-") || w == ">" || w == "|" {
			words = words[:i]
			break
		}
	}
	a, problem := ix.ParseAddress(words)
	if problem != nil {
		return problem.Message
	}
	if verb != "" {
		_, problem = ix.Write(verb, a)
	} else {
		_, problem = ix.Read(a)
	}
	if problem != nil {
		return problem.Message
	}
	if a.Resource != ix.Find(r.Plural) {
		return "it is about " + a.Resource.Plural
	}
	return ""
}
