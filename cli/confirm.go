package cli

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

func itoa(n int) string { return strconv.Itoa(n) }

// confirm says what a write did. Programs get the server's response.
func (a *App) confirm(ctx context.Context, w *write, answer *client.Response) error {
	value, err := output.Decode(answer.Body)
	if err != nil {
		value = map[string]any{} // nothing was sent back, as with 204
	}
	name := w.addr.ID()
	if name == "" {
		name = w.createdName(value)
	}
	if !w.p.machine() && w.p.fields == nil {
		return a.print(w.sentence(name, answer.Status) + secret(value))
	}
	if err != nil {
		value = w.bare(name)
	}
	if err := a.object(ctx, w.p, value, w.fields, name); err != nil || w.p.machine() {
		return err
	}
	return a.print(secret(value))
}

// bare stands for the answer of a server that sent none.
func (w *write) bare(name string) map[string]any {
	return map[string]any{"kind": w.addr.Resource.Kind, "name": name, "status": w.done}
}

// answerFields finds what --fields names in the answer of a write: a field of the object in it, or a path of the whole.
func (a *App) answerFields(w *write) ([]field, error) {
	if w.p.fields == nil {
		return nil, nil
	}
	var schema *registry.Schema
	if w.dryRun {
		schema = a.Index.Schema(registry.DryRunSchema)
	} else if success := w.op.Success(); success != nil && success.Schema != "" {
		schema = a.Index.Schema(success.Schema)
	}
	if schema == nil {
		schema = &registry.Schema{}
		for _, name := range slices.Sorted(maps.Keys(w.bare(""))) {
			schema.Fields = append(schema.Fields, registry.Field{Name: name})
		}
	}
	r := w.addr.Resource
	unwrap := ""
	object := register{item: true}
	if r.Item != nil && r.Item.Unwrap != "" {
		unwrap = r.Item.Unwrap
		object.schema = a.property(schema, unwrap)
	}
	var fields []field
	for _, name := range w.p.fields {
		if f, err := a.findField(r, object, name, false); object.schema != nil && err == nil {
			fields = append(fields, field{name, func(of row) any { return f.get(row{value: output.Lookup(of.value, unwrap)}) }})
			continue
		}
		if !a.hasPath(schema, name) {
			valid := headingsOf(schema)
			if object.schema != nil {
				valid = append(a.fieldNames(r, object), valid...)
			}
			return nil, unknownField(name, valid)
		}
		fields = append(fields, pathField(name))
	}
	return fields, nil
}

func headingsOf(schema *registry.Schema) []string {
	var names []string
	for _, f := range schema.Fields {
		names = append(names, f.Name)
	}
	return names
}

// sentence is the confirmation for a person.
func (w *write) sentence(name string, status int) string {
	subject := strings.TrimSpace(w.addr.Resource.Kind + " " + text.Line(name))
	line := w.done + " " + subject
	switch {
	case w.verb == "scale":
		line += " to " + itoa(w.replicas)
	case w.file != "" && w.file != "-":
		line += " from " + text.Line(w.file)
	}
	if status == http.StatusAccepted && !w.wait {
		line += " (accepted; the server is still at it)"
	}
	return line + "\n"
}

// createdName is what the server called the new object: pools and keys are named by it.
func (w *write) createdName(answer any) string {
	r := w.addr.Resource
	object := answer
	if r.Item != nil && r.Item.Unwrap != "" {
		object = output.Lookup(answer, r.Item.Unwrap)
	} else if m, ok := answer.(map[string]any); ok && len(m) == 1 {
		for _, only := range m {
			if _, isObject := only.(map[string]any); isObject {
				object = only
			}
		}
	}
	paths := []string{"name"}
	if r.List != nil && r.List.ID != "" {
		paths = []string{r.List.ID, "name"}
	}
	for _, path := range paths {
		if name := output.Plain(output.Lookup(object, path)); name != "" {
			return name
		}
	}
	return output.Plain(w.body["name"])
}

// secret shows a key that the server shows only this once.
func secret(answer any) string {
	key := output.Plain(output.Lookup(answer, "apiKey"))
	if key == "" {
		return ""
	}
	return "key: " + text.Line(key) + "\nhint: it is shown only now; keep it\n"
}

// printDryRun shows what a write would do.
func (a *App) printDryRun(ctx context.Context, w *write, answer *client.Response) error {
	value, err := output.Decode(answer.Body)
	if err != nil || output.Lookup(value, "changes") == nil && output.Lookup(value, "valid") == nil {
		return clierr.New(clierr.BadResponse, "the server did not answer with the result of a dry run; it may have carried the write out").
			Hint("look at what is there now: abx " + quoteWords(w.addr.Words()))
	}
	if w.p.machine() || w.p.fields != nil {
		return a.object(ctx, w.p, value, w.fields, w.addr.ID())
	}
	var b strings.Builder
	b.WriteString(w.p.style.Heading(fmt.Sprintf("dry run: %s %s", w.verb, text.Line(w.addr.String()))) + "; nothing was changed\n")
	changes, _ := output.Lookup(value, "changes").([]any)
	for _, c := range changes {
		b.WriteString(changeLine(w.p.style, c))
	}
	cascade, _ := output.Lookup(value, "cascade").([]any)
	for _, c := range cascade {
		b.WriteString(w.p.style.Removed(fmt.Sprintf("- also removes %s %s", output.Cell(output.Lookup(c, "kind")), output.Cell(output.Lookup(c, "name")))) + "\n")
	}
	warnings, _ := output.Lookup(value, "warnings").([]any)
	for _, warning := range warnings {
		b.WriteString("warning: " + output.Cell(warning) + "\n")
	}
	if len(changes)+len(cascade) == 0 && w.verb != "delete" {
		b.WriteString("no difference\n")
	}
	return a.print(b.String())
}

func changeLine(style output.Style, c any) string {
	path := output.Cell(output.Lookup(c, "path"))
	before, after := compact(output.Lookup(c, "before")), compact(output.Lookup(c, "after"))
	switch output.Plain(output.Lookup(c, "effect")) {
	case "clear":
		return style.Removed("- "+path+": "+before+" is removed") + "\n"
	case "unchanged":
		return "  " + path + " stays\n"
	}
	if before == "null" && (after == `""` || after == "null") {
		return "" // known only when it is done
	}
	if before == "null" {
		return style.Added("+ "+path+": "+after) + "\n"
	}
	return style.Added("~ "+path+": "+before+" → "+after) + "\n"
}

// compact is a value as one safe line of JSON.
func compact(v any) string {
	data, err := output.MarshalJSON(v)
	if err != nil {
		return output.Missing
	}
	return text.Line(string(data))
}
