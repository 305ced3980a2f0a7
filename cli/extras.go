package cli

import (
	"context"
	"io"
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
	cmd := skillscmd.New(skillscmd.Options{Getenv: a.Getenv, Print: a.printValue})
	addFlags(cmd, groupJSON)
	for _, sub := range cmd.Commands() {
		addOutput(sub, 0, valueFormats)
	}
	return cmd
}

// upgradeCommand is `abx upgrade`.
func (a *App) upgradeCommand() *cobra.Command {
	cmd := upgrade.New(upgrade.CommandOptions{Current: Version, Getenv: a.Getenv, Print: a.printValue, Transport: a.releaseTransport})
	addOutput(cmd, 0, valueFormats)
	return cmd
}

// printValue prints v as the output flags ask, or lets text print it for a person.
func (a *App) printValue(cmd *cobra.Command, v any, text func(io.Writer) error) error {
	p, err := a.printing(cmd)
	if err != nil {
		return err
	}
	if p.machine() {
		return a.local(cmd.Context(), p, v, "")
	}
	return text(a.Out)
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
