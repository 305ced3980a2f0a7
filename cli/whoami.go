package cli

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
)

// whoamiCommand is `abx whoami`.
func (a *App) whoamiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "whoami",
		Short:       "Who the key acts as, and whether its writes need approval",
		Args:        words(0, 0),
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.whoami(cmd) },
		Annotations: map[string]string{annotationExamples: "abx whoami\nabx whoami --jq .mode # agent or unrestricted"},
	}
	addOutput(cmd, groupGlobal|groupCSV|groupFields, formatsBut(output.Name)) // nothing addresses it
	a.completeFlags(cmd)
	return cmd
}

func (a *App) whoami(cmd *cobra.Command) error {
	p, err := a.printing(cmd)
	if err != nil {
		return err
	}
	schema := a.answerSchema("GetWhoAmI")
	for _, f := range p.fields {
		if !a.hasPath(schema, f) {
			return unknownField(f, headingsOf(schema))
		}
	}
	s, err := a.connect(cmd)
	if err != nil {
		return err
	}
	defer s.close()
	api, err := s.anyAPI(cmd.Context())
	if err != nil {
		return err
	}
	answer, err := api.Do(cmd.Context(), client.Request{Method: http.MethodGet, Path: "/auth/whoami"})
	if err != nil {
		return err
	}
	value, err := output.Decode(answer.Body)
	if err != nil || output.Lookup(value, "role") == nil {
		return clierr.New(clierr.BadResponse, "%s does not say who the key is", api.Base()).Hint("abx context show")
	}
	if p.machine() || p.fields != nil {
		var fields []field
		for _, f := range p.fields {
			fields = append(fields, pathField(f))
		}
		return a.object(cmd.Context(), p, value, fields, "")
	}
	mode := output.Plain(output.Lookup(value, "mode"))
	if mode == "agent" {
		mode += " (platform writes wait for a person)"
	}
	lines := []output.Pair{}
	for _, name := range []string{"role", "mode", "user", "team", "namespace"} {
		shown := output.Cell(output.Lookup(value, name))
		if name == "mode" && mode != "" {
			shown = output.Cell(mode)
		}
		lines = append(lines, output.Pair{Name: name, Value: shown})
	}
	_, store, err := a.saved()
	if err != nil {
		return err
	}
	lines = append(lines, output.Pair{Name: "address", Value: output.Cell(s.settings.Address())},
		output.Pair{Name: "key", Value: output.Cell(describeKey(s.settings, store).Source)})
	return output.WritePairs(a.Out, lines, p.style)
}

// anyAPI is the API of the chosen cluster, or of the first one when it makes no difference which answers.
func (s *session) anyAPI(ctx context.Context) (*client.Client, error) {
	if s.settings.Direct() || s.cluster != "" {
		return s.api(ctx)
	}
	ids, err := s.clusterIDs(ctx)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return s.api(ctx) // which says that there is none
	}
	return s.at(ids[0]), nil
}
