package cli

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

// printing is how a command was asked to print its result.
type printing struct {
	format output.Format
	fields []string
	query  *output.Query
	wide   bool
	style  output.Style
}

// printing reads and checks the output flags.
func (a *App) printing(cmd *cobra.Command) (printing, error) {
	p := printing{format: output.Table}
	set := cmd.Flags()
	var err error
	if name, _ := set.GetString("format"); set.Changed("format") {
		if p.format, err = output.ParseFormat(name); err != nil {
			return p, err
		}
	}
	asJSON, _ := set.GetBool("json")
	asCSV, _ := set.GetBool("csv")
	switch {
	case asJSON && (asCSV || set.Changed("format") && p.format != output.JSON), asCSV && set.Changed("format") && p.format != output.CSV:
		return p, clierr.New(clierr.InvalidValue, "--json, --csv and --format name different formats").Hint("give one of them")
	case asJSON:
		p.format = output.JSON
	case asCSV:
		p.format = output.CSV
	}
	if set.Changed("fields") {
		list, _ := set.GetString("fields")
		for _, f := range strings.Split(list, ",") {
			if f = strings.TrimSpace(f); f == "" {
				return p, clierr.New(clierr.InvalidValue, "--fields %q names an empty field", list).Hint("--fields name,status")
			}
			p.fields = append(p.fields, f)
		}
	}
	if expr, _ := set.GetString("jq"); set.Changed("jq") {
		if p.format == output.CSV || p.format == output.Name {
			return p, clierr.New(clierr.InvalidValue, "--jq prints JSON or YAML and not %s", p.format).Hint("leave one of them out")
		}
		if p.query, err = output.ParseQuery(expr); err != nil {
			return p, err
		}
	}
	if p.fields != nil && p.format == output.Name {
		return p, clierr.New(clierr.InvalidValue, "--format name prints one name a line, and --fields asks for others").Hint("leave one of them out, or use --format ndjson")
	}
	p.wide, _ = set.GetBool("wide")
	color, _ := set.GetString("color")
	p.style, err = output.NewStyle(color, a.Out, a.Getenv)
	return p, err
}

// machine reports whether the result goes to a program: no headings, no hints.
func (p printing) machine() bool { return p.format != output.Table || p.query != nil }

// document prints v, which is JSON, in the chosen format, or what --jq makes of it.
func (a *App) document(ctx context.Context, p printing, v any) error {
	if p.query == nil {
		return a.value(p, v)
	}
	return p.query.Run(ctx, v, func(result any) error {
		if s, ok := result.(string); ok && p.format == output.Table {
			return a.print(text.Block(s) + "\n")
		}
		return a.value(p, result)
	})
}

// object prints one object: its fields, or all of it. name is what addresses it.
func (a *App) object(ctx context.Context, p printing, value any, fields []field, name string) error {
	one := row{value: value}
	if fields == nil {
		fields = membersOf(value)
	}
	switch {
	case p.query == nil && p.format == output.CSV:
		return output.WriteCSV(a.Out, headings(fields), cells(fields, []row{one}, output.Plain))
	case p.query == nil && p.format == output.Name:
		return a.line(name)
	case p.machine():
		if p.fields != nil {
			value = picked(fields, one)
		}
		return a.document(ctx, p, value)
	}
	lines := make([]output.Pair, len(fields))
	for i, f := range fields {
		lines[i] = output.Pair{Name: f.id, Value: output.Cell(f.get(one))}
	}
	return output.WritePairs(a.Out, lines, p.style)
}

// picked is an object with only the fields.
func picked(fields []field, r row) map[string]any {
	object := map[string]any{}
	for _, f := range fields {
		object[f.id] = f.get(r)
	}
	return object
}

// pathField is the field of a path.
func pathField(path string) field {
	return field{path, func(w row) any { return output.Lookup(w.value, path) }}
}

// membersOf are the fields of an object that nothing describes, in the order of their names.
func membersOf(value any) []field {
	object, _ := value.(map[string]any)
	var fields []field
	for _, name := range slices.Sorted(maps.Keys(object)) {
		fields = append(fields, field{name, func(w row) any { return w.value.(map[string]any)[name] }})
	}
	return fields
}

// local prints an object that abx itself made, whose fields are what is in it.
func (a *App) local(ctx context.Context, p printing, v any, name string) error {
	value, err := toDocument(v)
	if err != nil {
		return err
	}
	var fields []field
	for _, path := range p.fields {
		if _, ok := registry.Lookup(value, path); !ok {
			return unknownField(path, headings(membersOf(value)))
		}
		fields = append(fields, pathField(path))
	}
	return a.object(ctx, p, value, fields, name)
}

func unknownField(name string, valid []string) error {
	return clierr.New(clierr.UnknownField, "there is no field %q here", name).Choices(valid, registry.Suggest(name, valid))
}

// toDocument is the JSON form of a struct.
func toDocument(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, clierr.New(clierr.Internal, "%v", err)
	}
	value, err := output.Decode(data)
	if err != nil {
		return nil, clierr.New(clierr.Internal, "%v", err)
	}
	return value, nil
}

func (a *App) value(p printing, v any) error {
	if p.format == output.YAML {
		return output.WriteYAML(a.Out, v)
	}
	return output.WriteJSON(a.Out, v)
}
