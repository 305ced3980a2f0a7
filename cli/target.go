package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// target is what a command line ends in: a form of a read, or a write. It decides, with the registry, which flags there
// are; help, agent-context and the refusals all ask it, so that no flag is offered where it cannot work.
type target struct {
	verb     string // empty for a read
	resource *registry.Resource
	item     bool // one object, or a view of it, and not the list
	view     *registry.View
	prints   string // schema or editable: the flag that prints a shape or a file, and neither reads nor writes
}

func targetOf(verb string, addr registry.Address) target {
	return target{verb: verb, resource: addr.Resource, item: !addr.Collection(), view: addr.View}
}

// targets are the forms of a resource: of its reads when verb is empty. A view that only the console has is none.
func targets(verb string, r *registry.Resource) []target {
	if verb != "" {
		if r.Verb(verb) == nil && r.Action(verb) == nil {
			return nil
		}
		return []target{{verb: verb, resource: r, item: verb != "create"}}
	}
	var list []target
	if r.List != nil {
		list = append(list, target{resource: r})
	}
	if r.Item != nil {
		list = append(list, target{resource: r, item: true})
	}
	for i := range r.Views {
		if r.Views[i].Operation != "" {
			list = append(list, target{resource: r, item: true, view: &r.Views[i]})
		}
	}
	return list
}

// targets are the forms of all resources.
func (a *App) targets(verb string) []target {
	var list []target
	for i := range a.Index.Resources {
		list = append(list, targets(verb, &a.Index.Resources[i])...)
	}
	return list
}

// name is how help and agent-context call the form of a read.
func (t target) name() string {
	switch {
	case t.verb != "":
		return t.verb
	case t.view != nil:
		return t.view.Name
	case t.item:
		return "item"
	}
	return "list"
}

// groups are the flags that the target takes.
func (a *App) groups(t target) group {
	switch t.prints {
	case "schema":
		return groupGlobal | groupValue | groupFields | groupSchema
	case "editable":
		return groupGlobal | groupFile
	}
	g := groupGlobal | groupValue
	add := func(extra group, when bool) {
		if when {
			g |= extra
		}
	}
	r := t.resource
	switch {
	case t.verb != "":
		op := a.writeOperation(t)
		v := r.Verb(t.verb)
		fromFile := v != nil && v.Sets == "" && op.Request != nil
		g |= groupWait | groupFields
		add(groupDryRun, op.QueryParam("dryRun") != nil)
		add(groupBody|groupSchema, fromFile)
		add(groupEditable, fromFile && (t.verb == "create" && op.Request.Example != "" || t.verb == "update" && r.Item != nil && r.Item.Editable != ""))
		add(groupScale, v != nil && v.Sets != "")
		add(groupAction, v == nil)
	case t.view != nil:
		g |= groupSchema
		add(groupLogs|groupCSV, t.view.Renderer == "logs")
	case t.item:
		g |= groupSchema | groupCSV | groupFields
		add(groupEditable, r.Item.Editable != "")
	default:
		g |= groupSchema | groupCSV | groupFields | groupRows
		add(groupFilter, len(r.Filters) > 0)
		add(groupWatch, r.List.Watch)
		add(groupAllClusters, !r.Platform)
	}
	return g
}

func (a *App) writeOperation(t target) *registry.Operation {
	if v := t.resource.Verb(t.verb); v != nil {
		return a.Index.Operation(v.Operation)
	}
	return a.Index.Operation(t.resource.Action(t.verb).Operation)
}

// takes reports whether the flag works at the target.
func (a *App) takes(t target, f flagDef) bool {
	return f.Groups&a.groups(t) != 0 && (f.Action == "" || f.Action == t.verb)
}

// formats are the values of --format that the target can print.
func (t target) formats() []string {
	switch {
	case t.prints == "schema":
		return valueFormats
	case t.prints == "editable":
		return formatsBut(output.CSV, output.Name, output.NDJSON)
	case t.verb != "":
		return formatsBut(output.CSV)
	case t.view != nil && t.view.Renderer == "logs":
		return formatsBut(output.Name)
	case t.view != nil:
		return valueFormats
	case !t.item && t.resource.List.ID == "" && t.resource.Columns[0].ID != "name":
		return formatsBut(output.Name) // nothing names a row
	}
	return output.Formats
}

// valueFormats are the formats of a command that prints one value.
var valueFormats = formatsBut(output.CSV, output.Name)

func formatsBut(none ...output.Format) []string {
	return slices.DeleteFunc(slices.Clone(output.Formats), func(f string) bool { return slices.Contains(none, output.Format(f)) })
}

// readGroups are the flags of a resource and what is below it: cobra has one command for all of that.
func (a *App) readGroups(r *registry.Resource) group {
	var g group
	for _, t := range targets("", r) {
		g |= a.groups(t)
	}
	for _, child := range r.Children {
		g |= a.readGroups(a.Index.Find(child))
	}
	return g
}

// verbGroups are the flags of a verb on any resource.
func (a *App) verbGroups(verb string) group {
	var g group
	for _, t := range a.targets(verb) {
		g |= a.groups(t)
	}
	return g
}

// checkFlags refuses flags that mean nothing at the address, with the command that was meant.
func (a *App) checkFlags(cmd *cobra.Command, verb string, addr registry.Address) error {
	t := targetOf(verb, addr)
	for _, name := range []string{"schema", "editable"} {
		if given, _ := cmd.Flags().GetBool(name); given && a.takes(t, *lookupFlag(name)) {
			t.prints = name
		}
	}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if def := lookupFlag(f.Name); err == nil && def != nil && !a.takes(t, *def) {
			err = a.misplaced(cmd, t, addr, *def)
		}
	})
	if err != nil {
		return err
	}
	return checkFormat(cmd, t.formats())
}

// misplaced says why a flag does not apply at the address, and where it does.
func (a *App) misplaced(cmd *cobra.Command, t target, addr registry.Address, f flagDef) error {
	refuse := func(format string, args ...any) *clierr.Error {
		return clierr.New(clierr.InvalidValue, "--%s %s", f.Name, fmt.Sprintf(format, args...))
	}
	list, item := addr.List(), addr
	item.View = nil
	r := t.resource
	switch g := f.Groups; {
	case t.prints != "":
		why := map[string]string{"schema": "prints a shape, as JSON or YAML, and sends nothing", "editable": "prints a whole file, as JSON or YAML, and writes nothing"}
		return clierr.New(clierr.InvalidValue, "--%s %s, so --%s does not apply", t.prints, why[t.prints], f.Name).Hint(a.retry(cmd, t, addr))
	case g&groupCSV != 0 && t.verb != "":
		return refuse("prints a table, and a write has none").Hint("use --json, which prints the server's response")
	case g&groupDryRun != 0:
		return clierr.New(clierr.Unsupported, "%s %s has no dry run", t.verb, r.Plural).Hint("leave --dry-run out; nothing was sent")
	case g&groupSchema != 0 && t.verb != "":
		return clierr.New(clierr.Unsupported, "%s %s takes no body", t.verb, r.Plural).Choices(a.bodyAddresses(), "").Hint("these commands have one; add --schema")
	case g&groupLogs != 0 && t.verb == "":
		return refuse("is for logs").Hint(a.logsAddress(cmd, addr))
	case t.view != nil && r.Item != nil && a.takes(target{resource: r, item: true}, f):
		return refuse("is for the object and not for its %s", t.view.Name).Hint(a.retry(cmd, target{resource: r, item: true}, item))
	case t.verb == "" && t.item && r.List != nil && a.takes(target{resource: r}, f):
		return refuse("is for lists, and this address names one object").Hint(a.retry(cmd, target{resource: r}, list))
	case g&groupEditable != 0 && t.verb == "" && !t.item && r.Verb("create") != nil:
		return refuse("needs one object; to begin a new one").Hint("abx create " + quoteWords(list.Words()) + " --editable")
	case g&groupEditable != 0 && t.verb == "" && r.Item != nil && r.Item.Editable != "":
		return refuse("needs one object").Hint("abx " + quoteWords(list.Words()) + " <" + r.Kind + "> --editable")
	case g&groupEditable != 0 && t.verb == "":
		return refuse("does not exist for %s: nothing updates one", r.Plural).Hint(a.retry(cmd, t, addr))
	case g&groupWatch != 0 && !t.item:
		return clierr.New(clierr.Unsupported, "%s cannot be watched", r.Plural).Hint(a.retry(cmd, t, addr))
	case g&groupAllClusters != 0 && !t.item:
		return refuse("would repeat %s, which belong to the whole platform", r.Plural).Hint(a.retry(cmd, t, addr))
	case g&groupFilter != 0 && !t.item:
		return refuse("does not apply: %s have no filters", r.Plural).Hint(a.retry(cmd, t, addr))
	}
	return refuse("does not apply to %s; it is for %s", commandOf(t, addr), a.belongsTo(f)).Choices(a.flagNames(t), "").Hint(a.retry(cmd, t, addr))
}

// commandOf is the command line of a target, without flags.
func commandOf(t target, addr registry.Address) string {
	return "abx " + quoteWords(slices.DeleteFunc(append([]string{t.verb}, addr.Words()...), func(w string) bool { return w == "" }))
}

// retry is the command line of another target with those of the given flags that it takes.
func (a *App) retry(cmd *cobra.Command, t target, addr registry.Address) string {
	return commandOf(t, addr) + writtenFlags(cmd, func(f *pflag.Flag) bool {
		def := lookupFlag(f.Name)
		return def != nil && a.takes(t, *def)
	})
}

// logsAddress is the command that reads the logs that the address leads to, with the given flags.
func (a *App) logsAddress(cmd *cobra.Command, addr registry.Address) string {
	words := []string{"sandboxes", "<sandbox>", "logs"}
	for i := range addr.Resource.Views {
		if v := &addr.Resource.Views[i]; v.Renderer == "logs" && !addr.Collection() {
			at := addr
			at.View = v
			return a.retry(cmd, targetOf("", at), at)
		}
	}
	return "abx " + strings.Join(words, " ") + writtenFlags(cmd, func(f *pflag.Flag) bool {
		def := lookupFlag(f.Name)
		return def != nil && def.Groups&groupLogs != 0
	})
}

// checkFormat refuses a --format that the command cannot print.
func checkFormat(cmd *cobra.Command, formats []string) error {
	name, _ := cmd.Flags().GetString("format")
	if !cmd.Flags().Changed("format") || slices.Contains(formats, name) {
		return nil
	}
	near := registry.Suggest(name, formats)
	if slices.Contains(output.Formats, name) {
		return clierr.New(clierr.InvalidValue, "--format %s does not apply here", name).Choices(formats, near)
	}
	return clierr.New(clierr.InvalidValue, "there is no format %q", name).Choices(formats, near)
}

// annotationFormats holds the formats of a command that is neither a read nor a write, and annotationSaves marks the one
// whose connection flags are what it saves.
const (
	annotationFormats = "formats"
	annotationSaves   = "saves"
)

// addOutput gives a command that is neither a read nor a write its flags, and refuses formats that it cannot print.
func addOutput(cmd *cobra.Command, groups group, formats []string) {
	addFlags(cmd, groups|groupValue)
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[annotationFormats] = strings.Join(formats, ", ")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return checkFormat(cmd, formats) }
}

// belongsTo says which commands take the flag, from what they take.
func (a *App) belongsTo(f flagDef) string {
	if f.Groups&groupGlobal != 0 {
		return "commands that connect"
	}
	var where []string
	reads, allReads := a.classes("", f)
	writes, allWrites := []string(nil), true
	for _, verb := range a.verbs() {
		names, all := a.classes(verb, f)
		writes, allWrites = append(writes, names...), allWrites && all
	}
	switch {
	case allReads:
		where = append(where, "reads")
	default:
		where = append(where, reads...)
	}
	switch {
	case allWrites:
		where = append(where, "writes")
	default:
		where = append(where, writes...)
	}
	return strings.Join(append(where, a.otherTakers(f)...), ", ")
}

// classes are the forms that take the flag, those of one name together. All reports whether every form does.
func (a *App) classes(verb string, f flagDef) (names []string, all bool) {
	var order []string
	takers, total := map[string][]string{}, map[string]int{}
	all = true
	for _, t := range a.targets(verb) {
		name := t.name()
		if total[name]++; total[name] == 1 {
			order = append(order, name)
		}
		if a.takes(t, f) {
			takers[name] = append(takers[name], t.resource.Plural)
		} else {
			all = false
		}
	}
	for _, name := range order {
		called := map[string]string{"list": "lists", "item": "single objects"}[name]
		if called == "" {
			called = name
		}
		switch n := len(takers[name]); {
		case n == total[name]:
			names = append(names, called)
		case n > 0:
			names = append(names, called+" ("+strings.Join(takers[name], " ")+")")
		}
	}
	return names, all
}

// otherTakers are the commands besides reads and writes that take the flag.
func (a *App) otherTakers(f flagDef) []string {
	var names []string
	for _, c := range a.others() {
		if own := c.Flags().Lookup(f.Name); own != nil && tableFlag(own) != nil {
			names = append(names, strings.TrimPrefix(c.CommandPath(), "abx "))
		}
	}
	return names
}

// others are the commands that are neither a read nor a write, with their subcommands and abx itself.
func (a *App) others() []*cobra.Command {
	root := a.Command()
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.Hidden || a.Index.Find(c.Name()) != nil || slices.Contains(a.verbs(), c.Name()) {
			continue
		}
		list = append(append(list, c), c.Commands()...)
	}
	return list
}
