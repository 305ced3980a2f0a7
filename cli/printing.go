package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
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

func (a *App) value(p printing, v any) error {
	if p.format == output.YAML {
		return output.WriteYAML(a.Out, v)
	}
	return output.WriteJSON(a.Out, v)
}
