package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// group is a set of flags that stand together; target.go says who takes which.
type group uint

const (
	groupGlobal group = 1 << iota // where to connect
	groupValue                    // how to print one value
	groupCSV                      // what has rows and columns
	groupFields                   // what has fields to choose from
	groupRows                     // lists
	groupFilter
	groupAllClusters
	groupWatch
	groupEditable
	groupSchema
	groupLogs
	groupBody   // a body from a file
	groupScale  // a verb that sets one number
	groupAction // the action that the flag names
	groupDryRun
	groupWait
	groupJSON    // commands whose only choice is JSON
	groupFile    // --editable, and how to print a whole file
	groupSave    // what a context holds
	groupVersion // abx alone
)

type flagKind int

const (
	kindBool flagKind = iota
	kindString
	kindStrings
	kindCount
	kindDuration
)

// flagDef is one flag of the command line. The table below is the only place that
// knows them: help, agent-context, completion and the argument order read it.
type flagDef struct {
	Name   string
	Short  string
	Arg    string // placeholder of the value; empty for a switch
	Kind   flagKind
	Groups group
	Values []string // closed set
	Action string   // the only action that takes it; empty for flags that are not of the document
	Help   string
}

var flagTable = sync.OnceValue(func() []flagDef {
	table := []flagDef{
		{Name: "json", Groups: groupValue | groupJSON | groupFile, Help: "print JSON; errors are JSON too"},
		{Name: "csv", Groups: groupCSV, Help: "print CSV"},
		{Name: "format", Arg: "FORMAT", Kind: kindString, Groups: groupValue | groupFile, Values: output.Formats, Help: "print in this format"},
		{Name: "fields", Arg: "A,B", Kind: kindString, Groups: groupFields, Help: "only these columns, or paths such as status.phase"},
		{Name: "jq", Arg: "EXPR", Kind: kindString, Groups: groupValue, Help: "print what this jq expression makes of the JSON"},
		{Name: "filter", Arg: "KEY=VALUE", Kind: kindStrings, Groups: groupFilter, Help: "only matching rows; KEY is a column heading; may be repeated"},
		{Name: "sort", Arg: "KEY", Kind: kindString, Groups: groupRows, Help: "sort by a column; -KEY sorts downwards"},
		{Name: "limit", Arg: "N", Kind: kindCount, Groups: groupRows, Help: "at most so many rows (tables: 200)"},
		{Name: "wide", Groups: groupRows, Help: "all columns"},
		{Name: "all-clusters", Groups: groupAllClusters, Help: "the same list from every cluster; cluster is one more column"},
		{Name: "watch", Groups: groupWatch, Help: "keep printing changes until interrupted"},
		{Name: "editable", Groups: groupEditable | groupFile, Help: "print the file that a write takes"},
		{Name: "schema", Groups: groupSchema, Help: "print the shape as JSON; works without a deployment"},
		{Name: "container", Arg: "NAME", Kind: kindString, Groups: groupLogs, Help: "logs: only this container"},
		{Name: "tail", Arg: "N", Kind: kindCount, Groups: groupLogs, Help: "logs: only the last N lines"},
		{Name: "follow", Groups: groupLogs, Help: "logs: keep printing new lines"},
		{Name: "source", Arg: "NAME", Kind: kindString, Groups: groupLogs, Help: "logs: where to read from"},
		{Name: "file", Short: "f", Arg: "FILE", Kind: kindString, Groups: groupBody, Help: "the body, JSON or YAML; - is standard input"},
		{Name: "replicas", Arg: "N", Kind: kindCount, Groups: groupScale, Help: "the new size"},
		{Name: "dry-run", Groups: groupDryRun, Help: "let the server check it and show what would change"},
		{Name: "wait", Groups: groupWait, Help: "wait for the effect, and for an approval"},
	}
	for _, s := range config.List {
		def := flagDef{Name: s.Flag, Arg: "VALUE", Kind: kindString, Groups: groupGlobal, Help: s.Help}
		if s.Flag != "context" && s.Flag != "timeout" {
			def.Groups |= groupSave
		}
		switch s.Flag {
		case "timeout":
			def.Kind, def.Arg = kindDuration, "DURATION"
		case "auth-scheme":
			def.Values = config.AuthSchemes
		case "endpoint", "cluster-api":
			def.Arg = "URL"
		case "context":
			def.Arg = "NAME"
		case "cluster":
			def.Arg = "ID"
		case "ca-file":
			def.Arg = "FILE"
		}
		table = append(table, def)
	}
	ix := registry.Default()
	for i := range ix.Resources {
		for _, v := range ix.Resources[i].Views {
			for _, o := range v.Options {
				if at := slices.IndexFunc(table, func(f flagDef) bool { return f.Name == o.Flag }); at >= 0 {
					table[at].Values = ix.Operation(v.Operation).QueryParam(o.Param).Schema.Enum
				}
			}
		}
		for _, act := range ix.Resources[i].Actions {
			for _, f := range act.Flags {
				table = append(table, flagDef{Name: f.Name, Arg: strings.ToUpper(f.Name), Kind: kindString, Groups: groupAction,
					Values: f.Values, Action: act.Name, Help: f.Describe})
			}
		}
	}
	return append(table,
		flagDef{Name: "api-key-stdin", Groups: groupGlobal | groupSave, Help: "read the key from standard input"},
		flagDef{Name: "color", Arg: "WHEN", Kind: kindString, Groups: groupGlobal, Values: output.ColorModes, Help: "when to use colour"},
		flagDef{Name: "version", Groups: groupVersion, Help: "print the version"},
	)
})

// addFlags defines the flags of the groups on cmd.
func addFlags(cmd *cobra.Command, groups group) {
	addFlagsIf(cmd, func(f flagDef) bool { return f.Groups&groups != 0 })
}

// addAddressFlags defines the flags of a command that an address follows. The other ones are there too, but hidden: they
// are refused when the address is known, with what would be right there.
func addAddressFlags(cmd *cobra.Command, groups group) {
	addFlagsIf(cmd, func(f flagDef) bool { return f.Groups != groupVersion })
	for _, f := range flagTable() {
		if own := cmd.Flags().Lookup(f.Name); own != nil {
			own.Hidden = f.Groups&groups == 0 || f.Action != "" && f.Action != cmd.Name()
		}
	}
}

func addFlagsIf(cmd *cobra.Command, wanted func(flagDef) bool) {
	cmd.Flags().BoolP("help", "h", false, "show this page")
	for _, f := range flagTable() {
		if !wanted(f) || cmd.Flags().Lookup(f.Name) != nil {
			continue
		}
		set := cmd.Flags()
		switch f.Kind {
		case kindBool:
			set.BoolP(f.Name, f.Short, false, f.Help)
		case kindStrings:
			set.StringArrayP(f.Name, f.Short, nil, f.Help)
		case kindCount:
			set.VarP(&count{-1}, f.Name, f.Short, f.Help)
		case kindDuration:
			set.VarP(&duration{}, f.Name, f.Short, f.Help)
		default:
			set.StringP(f.Name, f.Short, "", f.Help)
		}
		if f.Values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(f.Values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// count is a whole number, zero or more, in decimal digits; -1 means not given.
type count struct{ n int }

func (c *count) String() string { return strconv.Itoa(c.n) }
func (c *count) Type() string   { return "count" }
func (c *count) Set(s string) error {
	if s == "" || strings.Trim(s, "0123456789") != "" || len(s) > 9 {
		return errors.New("must be a whole number, zero or more, in decimal digits")
	}
	c.n, _ = strconv.Atoi(s)
	return nil
}

// duration is a positive time such as 30s or 5m; zero means not given.
type duration struct{ d time.Duration }

func (d *duration) String() string { return d.d.String() }
func (d *duration) Type() string   { return "duration" }
func (d *duration) Set(s string) (err error) {
	d.d, err = parseTimeout(s)
	return err
}

func parseTimeout(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errors.New("must be a duration above zero, such as 30s or 5m")
	}
	return d, nil
}

// arrange moves the flags behind the words, so that they may stand anywhere on the
// line: cobra alone would take a word after an unknown switch for its value. Words
// keep their order, flags theirs, and everything after -- is a word.
func arrange(root *cobra.Command, args []string) ([]string, error) {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return arrangeCompletion(root, args), nil
	}
	known := treeFlags(root)
	var words, flags []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(append(append(words, flags...), "--"), args[i+1:]...), nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			words = append(words, arg)
			if len(words) == 1 {
				known = commandFlags(root, arg, known)
			}
			continue
		}
		flags = append(flags, arg)
		f := known[arg]
		if f == nil || f.NoOptDefVal != "" {
			continue // a switch, an unknown flag, or one that carries its value
		}
		if i+1 == len(args) || known[args[i+1]] != nil {
			return nil, missingValue(f)
		}
		i++
		flags = append(flags, args[i])
	}
	return append(words, flags...), nil
}

// commandFlags lets the flags of the command that the first word names stand before
// those of the same name elsewhere.
func commandFlags(root *cobra.Command, word string, known map[string]*pflag.Flag) map[string]*pflag.Flag {
	for _, c := range root.Commands() {
		if c.Name() == word || c.HasAlias(word) {
			maps.Copy(known, treeFlags(c))
		}
	}
	return known
}

// treeFlags returns every flag of the tree by the way it is written: --name or -n.
func treeFlags(root *cobra.Command) map[string]*pflag.Flag {
	known := map[string]*pflag.Flag{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			walk(child)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			known["--"+f.Name] = f
			if f.Shorthand != "" {
				known["-"+f.Shorthand] = f
			}
		})
	}
	walk(root)
	return known
}

func missingValue(f *pflag.Flag) error {
	e := clierr.New(clierr.MissingValue, "--%s needs a value", f.Name)
	about := ownFlag(f)
	if def := tableFlag(f); def != nil {
		about = flagEntry(*def, nil)
		e = e.Choices(def.Values, "")
	}
	return e.Hint(about.name + ": " + about.about)
}

// flagError says what is wrong with the flags of cmd.
func (a *App) flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		return a.unknownFlag(cmd, unknown)
	case errors.As(err, &value):
		name := value.GetFlag().Name
		e := clierr.New(clierr.InvalidValue, "--%s=%s: %v", name, value.GetValue(), errors.Unwrap(value))
		if value.GetFlag().Value.Type() == "bool" {
			e = clierr.New(clierr.InvalidValue, "--%s takes no value other than true or false", name)
		}
		return e
	case errors.As(err, &missing):
		return missingValue(missing.GetFlag())
	}
	return clierr.New(clierr.UnknownFlag, "%v", err).Hint("a flag is written --name or --name=value")
}

func (a *App) unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name := unknown.GetSpecifiedName()
	shown := "--" + name
	if unknown.GetSpecifiedShortnames() != "" {
		shown = "-" + unknown.GetSpecifiedShortnames()
		name = unknown.GetSpecifiedShortnames()
	}
	var valid []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			valid = append(valid, "--"+f.Name)
		}
	})
	e := clierr.New(clierr.UnknownFlag, "%s has no flag %s", cmd.CommandPath(), shown)
	table := flagTable()
	if i := slices.IndexFunc(table, func(f flagDef) bool { return f.Name == name || f.Short == name }); i >= 0 {
		if shown[1] != '-' && len(name) > 1 && cmd.Flags().Lookup(name) != nil {
			return e.Choices(nil, "--"+name).Hint("a long flag has two dashes")
		}
		e.Message = fmt.Sprintf("--%s does not apply to %s", table[i].Name, cmd.CommandPath())
		return e.Hint("it is for "+a.belongsTo(table[i]), cmd.CommandPath()+" --help").Choices(valid, "")
	}
	if name == "yes" || name == "y" {
		return e.Hint("nothing asks a question; leave it out").Choices(valid, "")
	}
	suggestion := registry.Suggest("--"+strings.TrimLeft(name, "-"), valid)
	return e.Choices(valid, suggestion).Hint(cmd.CommandPath() + " --help")
}
