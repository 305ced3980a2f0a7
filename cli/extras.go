package cli

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
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
		Transport: a.releaseTransport,
	}), &asJSON)
}

// releaseTransport carries the requests for releases.
func (a *App) releaseTransport() (http.RoundTripper, error) {
	return client.NewTransport(client.Options{CAFile: a.Getenv("AGENTBOX_CA_FILE"), Getenv: a.Getenv})
}

// quiet are the commands that no notice follows: their output is for a shell, or about releases already.
var quiet = []string{"upgrade", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}

// updateNotice tells a person, after a command that was done and at most once a day, that a newer release is there.
func (a *App) updateNotice(ctx context.Context, args []string, code int) {
	if code != clierr.ExitOK || len(args) == 0 || slices.Contains(quiet, args[0]) {
		return
	}
	upgrade.Notice(ctx, upgrade.NoticeOptions{
		Current: Version, Getenv: a.Getenv, Err: a.Err, Terminal: output.IsTerminal(a.Err), JSON: wantsJSON(args), Now: time.Now,
		Source: func() (upgrade.Source, error) {
			transport, err := a.releaseTransport()
			if err != nil {
				return upgrade.Source{}, err
			}
			return upgrade.NewSource(a.Getenv, transport)
		},
	})
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
