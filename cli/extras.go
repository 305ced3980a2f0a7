package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/skillscmd"
	"navix.sh/agentbox/cli/upgrade"
)

// skillsCommand is `abx skills …`.
func (a *App) skillsCommand() *cobra.Command {
	var asJSON bool
	return withJSON(skillscmd.New(skillscmd.Options{Getenv: a.Getenv, JSON: func() bool { return asJSON }}), &asJSON)
}

// upgradeCommand is `abx upgrade`.
func (a *App) upgradeCommand() *cobra.Command {
	var asJSON bool
	return withJSON(upgrade.New(upgrade.CommandOptions{
		Current: Version, Getenv: a.Getenv, JSON: func() bool { return asJSON },
		Transport: func() (http.RoundTripper, error) {
			return client.NewTransport(client.Options{CAFile: a.Getenv("AGENTBOX_CA_FILE"), Getenv: a.Getenv})
		},
	}), &asJSON)
}

// withJSON gives a command and those below it the flags that every command has.
func withJSON(cmd *cobra.Command, asJSON *bool) *cobra.Command {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON; errors are JSON too")
	cmd.Flags().BoolP("help", "h", false, "show this page")
	for _, sub := range cmd.Commands() {
		withJSON(sub, asJSON)
	}
	return cmd
}
