package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

// helpWidth is the column at which help text is wrapped.
const helpWidth = 100

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
	h := &helpPage{style: style}
	name := cmd.Name()
	switch {
	case cmd == cmd.Root() && len(words) > 0:
		_, bad := a.Index.ParseAddress(words)
		return a.unknownCommand(words[0], bad)
	case cmd == cmd.Root():
		a.rootHelp(h, cmd)
	case cmd.Parent() == cmd.Root() && a.Index.Find(name) != nil:
		addr, bad := a.Index.ParseAddress(append([]string{name}, words...))
		if bad != nil {
			return addressError(bad)
		}
		a.resourceHelp(h, addr.Resource)
	case cmd.Parent() == cmd.Root() && slices.Contains(a.verbs(), name):
		if err := a.verbHelp(h, name, words); err != nil {
			return err
		}
	default:
		if len(words) > 0 && cmd.HasSubCommands() {
			return unknownWord(cmd, words[0])
		}
		a.commandHelp(h, cmd)
	}
	h.flags(cmd)
	return a.print(h.b.String())
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

// helpPage collects one page of help.
type helpPage struct {
	b     strings.Builder
	style output.Style
}

func (h *helpPage) title(name, summary string) {
	h.b.WriteString(h.style.Heading(name) + " — " + summary + "\n")
}

func (h *helpPage) paragraph(content string) {
	if content = strings.TrimSpace(content); content == "" {
		return
	}
	h.b.WriteString("\n")
	for part := range strings.SplitSeq(content, "\n") {
		h.b.WriteString(wrap(part, "", helpWidth) + "\n")
	}
}

func (h *helpPage) section(name string) { h.b.WriteString("\n" + h.style.Heading(name) + "\n") }

// entry is a name and what it is.
type entry struct{ name, about string }

func (h *helpPage) entries(list []entry) {
	width := 0
	for _, e := range list {
		if w := text.Width(e.name); w <= 36 {
			width = max(width, w)
		}
	}
	for _, e := range list {
		indent := strings.Repeat(" ", width+4)
		about := wrap(e.about, indent, helpWidth)
		switch {
		case about == "":
			h.b.WriteString("  " + e.name + "\n")
		case text.Width(e.name) > width:
			h.b.WriteString("  " + e.name + "\n" + indent + about + "\n")
		default:
			h.b.WriteString("  " + text.Pad(e.name, width) + "  " + about + "\n")
		}
	}
}

func (h *helpPage) lines(lines ...string) {
	for _, l := range lines {
		h.b.WriteString("  " + l + "\n")
	}
}

// commands prints example lines; what follows " # " explains them.
func (h *helpPage) commands(lines []string) {
	width := 0
	for _, l := range lines {
		command, _, _ := strings.Cut(l, " # ")
		if w := text.Width(command); w <= 60 {
			width = max(width, w)
		}
	}
	for _, l := range lines {
		command, why, explained := strings.Cut(l, " # ")
		line := h.style.Command(command)
		if explained {
			line += strings.Repeat(" ", max(0, width-text.Width(command))) + h.style.Dim("  # "+why)
		}
		h.b.WriteString("  " + line + "\n")
	}
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
		case def != nil && def.Arg != "":
			name += " " + def.Arg
			if len(def.Values) > 0 {
				about += ": " + strings.Join(def.Values, ", ")
			}
		default:
			name += " VALUE"
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
	h.b.WriteString("\n" + wrap("Flags that choose the deployment (--context, --cluster, --endpoint …) are the same everywhere: abx --help", "", helpWidth) + "\n")
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

// commandHelp is the page of a command that is neither a resource nor a verb.
func (a *App) commandHelp(h *helpPage, cmd *cobra.Command) {
	h.title(cmd.CommandPath(), cmd.Short)
	h.paragraph(cmd.Long)
	h.section("Usage")
	h.lines(strings.TrimSuffix(cmd.UseLine(), " [flags]") + map[bool]string{true: " <command>"}[cmd.HasAvailableSubCommands()])
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

// wrap breaks a paragraph at blanks so that no line is wider than width, which
// counts the indent that every line but the first gets.
func wrap(s, indent string, width int) string {
	room := width - text.Width(indent)
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && text.Width(line)+1+text.Width(word) > room {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"+indent)
}

// plural is a count with its noun.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
