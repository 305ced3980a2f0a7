// Package skillscmd is `abx skills`: list, show and install what package skills carries.
package skillscmd

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/skills"
)

// Options ties the command to its program.
type Options struct {
	Getenv func(string) string
	// Print prints a result as the output flags of the program ask, or with text for a person.
	Print func(cmd *cobra.Command, v any, text func(io.Writer) error) error
}

// New returns `abx skills`.
func New(o Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "skills",
		Short:   "The skills that teach an agent this platform",
		Example: "  abx skills list",
		Args:    cobra.ArbitraryArgs, // a word that is no subcommand gets our error, with the valid set
		RunE: func(_ *cobra.Command, args []string) error {
			verbs := []string{"install", "list", "show"}
			if len(args) == 0 {
				return clierr.New(clierr.MissingValue, "abx skills needs a command after it").Choices(verbs, "").Hint("abx skills list")
			}
			return clierr.New(clierr.UnknownCommand, "abx skills has no %q", args[0]).Choices(verbs, "").Hint("abx skills list")
		},
	}
	cmd.AddCommand(list(o), show(o), install(o))
	return cmd
}

type listed struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

func list(o Options) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Names, and when to read which", Example: "  abx skills list --json", Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			items := []listed{}
			for _, s := range skills.All() {
				items = append(items, listed{s.Name, s.Description})
			}
			return o.Print(cmd, map[string]any{"items": items, "total": len(items)}, func(out io.Writer) error {
				for _, s := range items {
					fmt.Fprintf(out, "%-28s %s\n", s.Name, s.Description)
				}
				_, err := fmt.Fprintln(out, "\nhint: abx skills show "+skills.Common)
				return err
			})
		},
	}
}

func show(o Options) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Print one skill", Example: "  abx skills show abx-common", Args: oneName,
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return slices.DeleteFunc(names(), func(n string) bool { return !strings.HasPrefix(n, prefix) }), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, ok := skills.Find(args[0])
			if !ok {
				return clierr.New(clierr.InvalidValue, "there is no skill %q", args[0]).Choices(names(), nearest(args[0])).Hint("abx skills list")
			}
			return o.Print(cmd, map[string]string{"name": s.Name, "description": s.Description, "text": s.Text}, func(out io.Writer) error {
				_, err := fmt.Fprint(out, s.Text)
				return err
			})
		},
	}
}

func install(o Options) *cobra.Command {
	var dir, host string
	cmd := &cobra.Command{
		Use: "install", Short: "Write the skills where an agent reads them", Example: "  abx skills install --for claude-code",
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := targetDir(o.Getenv, dir, host)
			if err != nil {
				return err
			}
			done, err := Install(target)
			if err != nil {
				return err
			}
			return o.Print(cmd, done, func(out io.Writer) error {
				_, err := fmt.Fprintf(out, "%s: %d written, %d unchanged\n", done.Dir, len(done.Written), len(done.Unchanged))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` to write to; default ~/.agents/skills")
	cmd.Flags().StringVar(&host, "for", "", "the `agent` whose folder to write to: "+strings.Join(hostNames(), ", "))
	return cmd
}

func noWords(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return tooMany(cmd, args[0])
}

func oneName(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return clierr.New(clierr.MissingValue, "abx skills show needs the name of a skill").Choices(names(), "").Hint("abx skills show " + skills.Common)
	case len(args) > 1:
		return tooMany(cmd, args[1])
	}
	return nil
}

func tooMany(cmd *cobra.Command, word string) error {
	return clierr.New("TOO_MANY_WORDS", "abx skills %s has no use for %q", cmd.Name(), word).Hint("abx skills " + cmd.Name() + " --help")
}

func names() []string {
	var out []string
	for _, s := range skills.All() {
		out = append(out, s.Name)
	}
	return out
}

// nearest guesses the skill that was meant by a name without its prefix, or one that holds the word.
func nearest(word string) string {
	for _, n := range names() {
		if n == "abx-"+word || strings.Contains(n, word) && word != "" {
			return n
		}
	}
	return ""
}

func home(getenv func(string) string) (string, error) {
	if h := getenv("HOME"); h != "" {
		return h, nil
	}
	h, err := os.UserHomeDir()
	if err != nil {
		return "", clierr.New(clierr.MissingValue, "no home folder is known: %v", err).Because(err).Hint("abx skills install --dir DIR")
	}
	return h, nil
}
