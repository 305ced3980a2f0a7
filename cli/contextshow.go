package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/cli/credential"
	"navix.sh/agentbox/cli/output"
)

// contextShow prints every setting with where it comes from. The key is never printed,
// only where it is kept.
func (a *App) contextShow(cmd *cobra.Command, args []string) error {
	p, err := a.printing(cmd)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		if err := cmd.Flags().Set("context", args[0]); err != nil {
			return err
		}
	}
	settings, path, err := a.settings(cmd)
	if err != nil {
		return err
	}
	store, err := credential.New(path, a.Getenv)
	if err != nil {
		return err
	}
	key := describeKey(settings, store)
	mode := config.Value{Value: "console", Source: settings.Endpoint.Source}
	if settings.Direct() {
		mode = config.Value{Value: "cluster-api", Source: settings.ClusterAPI.Source}
	}
	scheme := settings.AuthScheme
	if scheme.Value == "" {
		scheme = config.Value{Value: map[bool]string{true: "bearer", false: "api-key"}[bearer(settings)], Source: "follows from the mode"}
	}
	list := []setting{
		{"context", settings.Context}, {"address", config.Value{Value: settings.Address(), Source: mode.Source}}, {"mode", mode},
		{"cluster", settings.Cluster}, {"key", key}, {"auth-scheme", scheme}, {"ca-file", settings.CAFile}, {"timeout", settings.Timeout},
		{"config", config.Value{Value: path}},
	}
	return a.printSettings(cmd.Context(), p, list)
}

type setting struct {
	name  string
	value config.Value
}

// printSettings prints the settings, or those that --fields names.
func (a *App) printSettings(ctx context.Context, p printing, list []setting) error {
	var names []string
	for _, s := range list {
		names = append(names, s.name)
	}
	for _, f := range p.fields {
		if !slices.Contains(names, f) {
			return unknownField(f, names)
		}
	}
	if p.fields != nil {
		list = slices.DeleteFunc(list, func(s setting) bool { return !slices.Contains(p.fields, s.name) })
	}
	document := map[string]any{}
	show := output.Cell
	if p.format == output.CSV {
		show = output.Plain
	}
	var rows [][]string
	for _, s := range list {
		document[s.name] = map[string]any{"value": s.value.Value, "source": s.value.Source}
		rows = append(rows, []string{s.name, show(s.value.Value), show(s.value.Source)})
	}
	heading := []string{"setting", "value", "from"}
	switch {
	case p.query == nil && p.format == output.CSV:
		return output.WriteCSV(a.Out, heading, rows)
	case p.query == nil && p.format == output.Name:
		return a.print(strings.Join(names, "\n") + "\n")
	case p.machine():
		return a.document(ctx, p, document)
	}
	return output.WriteTable(a.Out, heading, rows, p.style)
}

func describeKey(s config.Settings, store *credential.Store) config.Value {
	switch {
	case s.Saved != nil:
		return config.Value{Value: "saved for " + s.Saved.Address, Source: store.Place(s.Saved.Store)}
	case s.APIKey.Value != "":
		return config.Value{Value: "set", Source: s.APIKey.Source}
	case s.Withheld != "":
		return config.Value{Value: "withheld", Source: s.Withheld}
	}
	return config.Value{Value: "none"}
}
