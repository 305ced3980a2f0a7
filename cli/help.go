package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// helpCommand is `abx help [<command or address>]`.
func (a *App) helpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "help [COMMAND]", Short: "Help for a command or a resource", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			return a.printHelp(target, rest, asJSON)
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
	addFlags(cmd, groupJSON)
	return cmd
}

// help prints the help of a command; words are what follows it, an address perhaps.
func (a *App) help(cmd *cobra.Command, words []string) error {
	asJSON, _ := cmd.Flags().GetBool("json")
	return a.printHelp(cmd, words, asJSON)
}

func (a *App) printHelp(cmd *cobra.Command, words []string, asJSON bool) error {
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
	if asJSON {
		return output.WriteJSON(a.Out, map[string]string{"name": page.name, "summary": page.summary, "text": page.render(output.Style{})})
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
		a.formFlags(h, targets("", addr.Resource))
		return h, nil
	case cmd.Parent() == cmd.Root() && slices.Contains(a.verbs(), name):
		if err := a.verbHelp(h, name, words); err != nil {
			return nil, err
		}
		forms := a.targets(name)
		if addr, bad := a.Index.ParseAddress(words); bad == nil {
			forms = targets(name, addr.Resource)
		}
		a.formFlags(h, forms)
		return h, nil
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

// flagEntry is a flag as help shows it; values replace those of the table.
func flagEntry(f flagDef, values []string) entry {
	e := entry{"--" + f.Name, f.Help}
	if f.Short != "" {
		e.name = "-" + f.Short + ", " + e.name
	}
	if f.Arg != "" {
		e.name += " " + f.Arg
	}
	if len(values) > 0 {
		e.about += ": " + strings.Join(values, ", ")
	}
	return e
}

var helpFlag = entry{"-h, --help", "show this page"}

const elsewhere = "Flags that choose the deployment (--context, --cluster, --endpoint …) are the same everywhere: abx --help"

// formFlags prints the flags of the forms of a resource or a verb: first those that all of them take, then what each
// takes besides. Of a verb without an address only the former are certain.
func (a *App) formFlags(h *helpPage, forms []target) {
	count := map[entry]int{}
	each := make([][]entry, len(forms))
	for i, t := range forms {
		for _, f := range flagTable() {
			if f.Groups&groupGlobal != 0 || !a.takes(t, f) {
				continue
			}
			values := f.Values
			if f.Name == "format" {
				values = t.formats()
			}
			e := flagEntry(f, values)
			each[i] = append(each[i], e)
			count[e]++
		}
		sortFlags(each[i])
	}
	var common []entry
	if len(each) > 0 {
		common = slices.DeleteFunc(slices.Clone(each[0]), func(e entry) bool { return count[e] < len(forms) })
	}
	common = append(common, helpFlag)
	sortFlags(common)
	h.section("Flags")
	h.entries(common)
	for i, t := range forms {
		own := slices.DeleteFunc(each[i], func(e entry) bool { return count[e] == len(forms) })
		if len(own) == 0 || t.resource != forms[0].resource {
			continue
		}
		called := map[string]string{"list": "the list", "item": "one " + t.resource.Kind}[t.name()]
		if called == "" {
			called = t.name()
		}
		h.section("Flags of " + called)
		h.entries(own)
	}
	h.paragraph(elsewhere)
}

func sortFlags(list []entry) {
	long := func(e entry) string { return e.name[strings.Index(e.name, "--"):] }
	slices.SortFunc(list, func(x, y entry) int { return strings.Compare(long(x), long(y)) })
}

// flags prints the flags of a command that is neither a read nor a write, its own first.
func (h *helpPage) flags(cmd *cobra.Command) {
	var own, connect []entry
	saves := cmd.Annotations[annotationSaves] != ""
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		def := tableFlag(f)
		switch {
		case f.Name == "help":
			own = append(own, helpFlag)
		case def == nil: // the command's own, of another package
			own = append(own, ownFlag(f))
		case def.Groups&groupGlobal != 0 && !(saves && def.Groups&groupSave != 0):
			connect = append(connect, flagEntry(*def, def.Values))
		case f.Name == "format":
			own = append(own, flagEntry(*def, strings.Split(cmd.Annotations[annotationFormats], ", ")))
		default:
			own = append(own, flagEntry(*def, def.Values))
		}
	})
	if len(own) > 0 {
		h.section("Flags")
		h.entries(own)
	}
	switch {
	case cmd == cmd.Root():
		h.section("Connection, on every command that connects")
		h.entries(connect)
	case len(connect) > 0 && !saves:
		h.paragraph(elsewhere)
	}
}

// ownFlag is a flag that the table does not have.
func ownFlag(f *pflag.Flag) entry {
	if f.NoOptDefVal != "" {
		return entry{"--" + f.Name, f.Usage}
	}
	arg, usage := pflag.UnquoteUsage(f)
	return entry{"--" + f.Name + " " + strings.ToUpper(arg), usage}
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

// tableFlag is the flag as the table has it; nil for one of a command's own, which may share a name with one of the table, as
// --version of upgrade does.
func tableFlag(f *pflag.Flag) *flagDef {
	if def := lookupFlag(f.Name); def != nil && def.Help == f.Usage {
		return def
	}
	return nil
}

// usageFlags writes the flags that make up what a command does, behind its usage: its own, and those that it saves. Where
// others connect and how they print is the same everywhere, and a key on a command line is there for all to see.
func usageFlags(cmd *cobra.Command) string {
	var names []string
	if cmd.Annotations[annotationSaves] != "" {
		for _, f := range flagTable() {
			if f.Groups&groupSave != 0 && f.Name != "api-key" {
				names = append(names, flagEntry(f, nil).name)
			}
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && tableFlag(f) == nil {
			names = append(names, ownFlag(f).name)
		}
	})
	usage := ""
	for _, name := range names {
		usage += " [" + name + "]"
	}
	return usage
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
	h.lines(usage + usageFlags(cmd))
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
