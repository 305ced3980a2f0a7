// Command apireference writes docs/api.md, the reference of the native API, from the compiled document.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"navix.sh/agentbox/registry"
)

//go:generate go run . ../../docs/api.md

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: apireference FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(render(registry.Default())), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "apireference:", err)
		os.Exit(1)
	}
}

// render is the whole page.
func render(ix *registry.Index) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Native API

Version %s. Generated from `+"`openapi/native.yaml`"+` with `+"`go generate ./internal/apireference`"+`; a running platform serves the
document at `+"`/openapi.yaml`"+`.

Every path stands below `+"`/v1`"+` with the header `+"`AGENTBOX-API-KEY`"+`, and below `+"`/api/clusters/{cluster}/v1`"+` with
`+"`Authorization: Bearer`"+`. An error is an [ErrorResponse](#errorresponse).

`, ix.SpecVersion)
	b.WriteString("| Operation | Route | What |\n|---|---|---|\n")
	operations := byPath(ix)
	for _, op := range operations {
		fmt.Fprintf(&b, "| [%s](#%s) | `%s %s` | %s |\n", op.ID, anchor(op.ID), op.Method, op.Path, cell(op.Summary))
	}
	b.WriteString("\n## Operations\n")
	for _, op := range operations {
		operation(&b, ix, op)
	}
	b.WriteString("\n## Schemas\n")
	for i := range ix.Schemas {
		schema(&b, ix, &ix.Schemas[i])
	}
	return b.String()
}

func byPath(ix *registry.Index) []*registry.Operation {
	methods := []string{"GET", "POST", "PUT", "DELETE"}
	var all []*registry.Operation
	for i := range ix.Operations {
		all = append(all, &ix.Operations[i])
	}
	slices.SortStableFunc(all, func(a, b *registry.Operation) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return slices.Index(methods, a.Method) - slices.Index(methods, b.Method)
	})
	return all
}

func operation(b *strings.Builder, ix *registry.Index, op *registry.Operation) {
	fmt.Fprintf(b, "\n### %s\n\n`%s %s`\n\n%s\n", op.ID, op.Method, op.Path, sentence(op.Summary))
	if op.Description != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(op.Description))
	}
	for _, note := range []struct {
		holds bool
		text  string
	}{
		{op.Admin, "Needs an administrator's key."},
		{op.Approval != "", "With an agent key it waits for a person's approval of `" + op.Approval + "`."},
		{op.AgentForbidden != "", "Never with an agent key: " + op.AgentForbidden + "."},
		{op.Deprecated, "Deprecated."},
		{op.Since != "", "Since version " + op.Since + "."},
	} {
		if note.holds {
			fmt.Fprintf(b, "\n%s\n", note.text)
		}
	}
	var rows []string
	for _, group := range []struct {
		where  string
		params []registry.Param
	}{{"path", op.PathParams}, {"query", op.Query}, {"header", op.Headers}} {
		for _, p := range group.params {
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", p.Name, group.where, typeOf(ix, &p.Schema), cell(p.Describe)))
		}
	}
	if rows != nil {
		fmt.Fprintf(b, "\n| Parameter | In | Type | What |\n|---|---|---|---|\n%s\n", strings.Join(rows, "\n"))
	}
	if op.Request != nil {
		fmt.Fprintf(b, "\nBody: %s.\n", link(op.Request.Schema))
	}
	b.WriteString("\n| Status | Body | What |\n|---|---|---|\n")
	var errors []string
	for _, r := range op.Responses {
		if r.Status >= 400 {
			errors = append(errors, fmt.Sprint(r.Status))
			continue
		}
		body := ""
		if r.Schema != "" {
			body = link(r.Schema)
		}
		fmt.Fprintf(b, "| %d | %s | %s |\n", r.Status, body, cell(r.Describe))
	}
	fmt.Fprintf(b, "\nErrors: %s.\n", strings.Join(errors, ", "))
}

func schema(b *strings.Builder, ix *registry.Index, s *registry.Schema) {
	fmt.Fprintf(b, "\n### %s\n", s.Name)
	if s.Describe != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(s.Describe))
	}
	if len(s.Fields) == 0 {
		if s.Type != registry.TypeObject {
			fmt.Fprintf(b, "\nType: %s.\n", typeOf(ix, s))
		}
		return
	}
	b.WriteString("\n| Field | Type | What |\n|---|---|---|\n")
	for _, f := range s.Fields {
		what := cell(f.Schema.Describe)
		if f.Required {
			what = "**Required.** " + what
		}
		if f.Fixed {
			what += " Fixed at create: " + cell(f.Lever)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Name, typeOf(ix, &f.Schema), what)
	}
}

// typeOf names a type, with its closed set.
func typeOf(ix *registry.Index, s *registry.Schema) string {
	switch {
	case s.Ref != "":
		return link(s.Ref)
	case len(s.Enum) > 0:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case s.Type == registry.TypeArray && s.Elem != nil:
		return "list of " + typeOf(ix, s.Elem)
	case s.Type == registry.TypeMap && s.Elem != nil:
		return "map of " + typeOf(ix, s.Elem)
	case s.Type == registry.TypeOneOf:
		var names []string
		for i := range s.OneOf {
			names = append(names, typeOf(ix, &s.OneOf[i]))
		}
		return strings.Join(names, " or ")
	case s.Format != "":
		return s.Type + " (" + s.Format + ")"
	}
	return s.Type
}

func link(name string) string { return "[" + name + "](#" + anchor(name) + ")" }

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(heading))
}

// cell fits a text into one cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
