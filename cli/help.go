package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// helpCommand is `abx help [<command or address>]`.
func (a *App) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help for a command or a resource", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			return a.help(target, rest)
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				if strings.HasPrefix(c.Name(), prefix) && !c.Hidden {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		Annotations: map[string]string{annotationExamples: "abx help envs\nabx help create envs"},
	}
}

// help prints the help of a command; words are what follows it, an address perhaps.
func (a *App) help(cmd *cobra.Command, words []string) error {
	color := ""
	if f := cmd.Flags().Lookup("color"); f != nil {
		color = f.Value.String()
	}
	style, err := output.NewStyle(color, a.Out, a.Getenv)
	if err != nil {
		return err
	}
	page, err := a.page(cmd, words)
	if err != nil {
		return err
	}
	return a.print(page.render(style))
}

// page builds the help of a command.
func (a *App) page(cmd *cobra.Command, words []string) (*helpPage, error) {
	h := &helpPage{}
	name := cmd.Name()
	switch {
	case cmd == cmd.Root() && len(words) > 0:
		_, bad := a.Index.ParseAddress(words)
		return nil, a.unknownCommand(words[0], bad)
	case cmd == cmd.Root():
		a.rootHelp(h, cmd)
	case cmd.Parent() == cmd.Root() && a.Index.Find(name) != nil:
		addr, bad := a.Index.ParseAddress(append([]string{name}, words...))
		if bad != nil {
			return nil, addressError(bad)
		}
		a.resourceHelp(h, addr.Resource)
	case cmd.Parent() == cmd.Root() && slices.Contains(a.verbs(), name):
		if err := a.verbHelp(h, name, words); err != nil {
			return nil, err
		}
	default:
		if len(words) > 0 && cmd.HasSubCommands() {
			return nil, unknownWord(cmd, words[0])
		}
		a.commandHelp(h, cmd)
	}
	h.flags(cmd)
	return h, nil
}

// unknownWord refuses a word after a command that has subcommands.
func unknownWord(cmd *cobra.Command, word string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return clierr.New(clierr.UnknownCommand, "%s has no command %q", cmd.CommandPath(), word).
		Choices(names, registry.Suggest(word, names)).Hint(cmd.CommandPath() + " --help")
}

// flags prints the flags of a command, its own first.
func (h *helpPage) flags(cmd *cobra.Command) {
	var own, connect []entry
	global := map[string]bool{"color": true, "api-key-stdin": true}
	for _, s := range config.List {
		global[s.Flag] = true
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		about := f.Usage
		def := lookupFlag(f.Name)
		switch {
		case f.NoOptDefVal != "": // a switch
		default:
			name += " " + valueName(def)
			if def != nil && len(def.Values) > 0 {
				about += ": " + strings.Join(def.Values, ", ")
			}
		}
		if global[f.Name] {
			connect = append(connect, entry{name, about})
			return
		}
		own = append(own, entry{name, about})
	})
	if len(own) > 0 {
		h.section("Flags")
		h.entries(own)
	}
	if len(connect) == 0 {
		return
	}
	if cmd == cmd.Root() {
		h.section("Connection, on every command that connects")
		h.entries(connect)
		return
	}
	h.paragraph("Flags that choose the deployment (--context, --cluster, --endpoint …) are the same everywhere: abx --help")
}

func lookupFlag(name string) *flagDef {
	table := flagTable()
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}

// ownFlags writes the flags that make up what a command does, behind its usage: not those of every command, which say where
// to connect and how to print.
func ownFlags(cmd *cobra.Command) string {
	usage := ""
	add := func(name, arg string) {
		if arg != "" {
			arg = " " + arg
		}
		usage += " [--" + name + arg + "]"
	}
	for _, name := range strings.Fields(cmd.Annotations[annotationFlags]) {
		add(name, lookupFlag(name).Arg)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		def := lookupFlag(f.Name)
		switch {
		case f.Name == "help" || def != nil && def.Groups&(groupOutput|groupGlobal) != 0:
		case f.NoOptDefVal != "":
			add(f.Name, "")
		default:
			add(f.Name, valueName(def))
		}
	})
	return usage
}

// valueName is the placeholder of a flag's value; def is nil for a flag that the table does not have.
func valueName(def *flagDef) string {
	if def != nil && def.Arg != "" {
		return def.Arg
	}
	return "VALUE"
}

// commandHelp is the page of a command that is neither a resource nor a verb.
func (a *App) commandHelp(h *helpPage, cmd *cobra.Command) {
	h.title(cmd.CommandPath(), cmd.Short)
	h.paragraph(cmd.Long)
	h.section("Usage")
	usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	if cmd.HasAvailableSubCommands() {
		usage += " <command>"
	}
	h.lines(usage + ownFlags(cmd))
	var subs []entry
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			subs = append(subs, entry{strings.TrimPrefix(c.UseLine(), cmd.CommandPath()+" "), c.Short})
		}
	}
	for i := range subs {
		subs[i].name = strings.TrimSuffix(subs[i].name, " [flags]")
	}
	if len(subs) > 0 {
		h.section("Commands")
		h.entries(subs)
	}
	examples := cmd.Annotations[annotationExamples]
	if examples == "" {
		examples = strings.TrimSpace(cmd.Example)
	}
	if examples != "" {
		h.section("Examples")
		h.commands(strings.Split(examples, "\n"))
	}
}
