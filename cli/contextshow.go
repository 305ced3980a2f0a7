package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
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
	list := []struct {
		name  string
		value config.Value
	}{
		{"context", settings.Context}, {"address", config.Value{Value: settings.Address(), Source: mode.Source}}, {"mode", mode},
		{"cluster", settings.Cluster}, {"key", key}, {"auth-scheme", scheme}, {"ca-file", settings.CAFile}, {"timeout", settings.Timeout},
		{"config", config.Value{Value: path}},
	}
	if p.machine() {
		document := map[string]any{}
		for _, l := range list {
			document[l.name] = map[string]any{"value": l.value.Value, "source": l.value.Source}
		}
		return a.document(cmd.Context(), p, document)
	}
	var rows [][]string
	for _, l := range list {
		rows = append(rows, []string{l.name, output.Cell(l.value.Value), output.Cell(l.value.Source)})
	}
	return output.WriteTable(a.Out, []string{"setting", "value", "from"}, rows, p.style)
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

// struct2document prints a struct as a document, through its JSON form.
func (a *App) struct2document(ctx context.Context, p printing, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return clierr.New(clierr.Internal, "%v", err)
	}
	value, err := output.Decode(data)
	if err != nil {
		return clierr.New(clierr.Internal, "%v", err)
	}
	return a.document(ctx, p, value)
}
