package upgrade

import (
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
)

// CommandOptions ties the command to its program.
type CommandOptions struct {
	// Current is the running version.
	Current string
	Getenv  func(string) string
	// Transport makes the HTTP transport when the command runs; nil takes the default one.
	Transport func() (http.RoundTripper, error)
	// Print prints a result as the output flags of the program ask, or with text for a person.
	Print func(cmd *cobra.Command, v any, text func(io.Writer) error) error
}

// New returns `abx upgrade`.
func New(o CommandOptions) *cobra.Command {
	r := Request{Current: o.Current}
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace this abx with a verified release",
		Long: "Downloads a release, checks its signature and checksum, and replaces this program in one step.\n" +
			"Every failure leaves the old program as it was. AGBX_CLI_BASE names another address of releases, and\n" +
			"AGBX_CLI_PUBLIC_KEY the PEM file of the key that signs them.",
		Example: "  abx upgrade --check",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return clierr.New(clierr.UnknownCommand, "abx upgrade takes no words, got %q", args[0]).Hint("abx upgrade --help", "--version pins a release")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			// First: a build from source needs neither an address nor a key to be told that it has no release.
			if err := r.check(); err != nil {
				return err
			}
			var transport http.RoundTripper
			if o.Transport != nil {
				t, err := o.Transport()
				if err != nil {
					return err
				}
				transport = t
			}
			source, err := NewSource(o.Getenv, transport)
			if err != nil {
				return err
			}
			path, err := Executable()
			if err != nil {
				return err
			}
			result, err := Upgrade(cmd.Context(), source, path, r)
			if err != nil {
				return err
			}
			return o.Print(cmd, result, func(out io.Writer) error {
				Print(out, result, r)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&r.Check, "check", false, "only say whether a newer release is there")
	f.StringVar(&r.Version, "version", "", "install this `release` instead of the latest, for instance v1.2.3")
	f.BoolVar(&r.Reinstall, "force", false, "install even when the version is the same")
	f.BoolVar(&r.AllowDowngrade, "allow-downgrade", false, "accept a release older than this abx")
	return cmd
}
