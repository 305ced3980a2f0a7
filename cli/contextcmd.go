package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/cli/credential"
	"navix.sh/agentbox/cli/output"
)

// contextCommand is `abx context …`: saved deployments.
func (a *App) contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "context",
		Aliases: []string{"contexts"},
		Short:   "Saved deployments: where they are, and where their keys are kept",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownWord(cmd, args[0])
			}
			return a.contextList(cmd)
		},
		Annotations: map[string]string{annotationExamples: strings.Join([]string{
			"abx context set prod --endpoint https://console.example.com/agentbox --api-key-stdin < KEYFILE",
			"abx context show # every setting, and where it comes from", "abx context use prod"}, "\n")},
	}
	addOutput(cmd, groupGlobal|groupCSV|groupFields, output.Formats)
	a.completeFlags(cmd)
	names := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.contextNames(), cobra.ShellCompDirectiveNoFileComp
	}
	add := func(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error, example string) *cobra.Command {
		sub := &cobra.Command{Use: use, Short: short, Args: args, RunE: run, ValidArgsFunction: names,
			Annotations: map[string]string{annotationExamples: example}}
		addOutput(sub, groupGlobal|groupCSV|groupFields, output.Formats)
		a.completeFlags(sub)
		cmd.AddCommand(sub)
		return sub
	}
	set := add("set NAME", "Save a deployment, or change what is given of one", words(1, 1), a.reports(a.contextSet),
		"abx context set prod --endpoint https://console.example.com/agentbox --api-key-stdin < KEYFILE")
	set.Annotations[annotationSaves] = "true"
	add("use NAME", "Make a context the current one", words(1, 1), a.reports(a.contextUse), "abx context use prod")
	add("list", "All contexts", words(0, 0), func(cmd *cobra.Command, _ []string) error { return a.contextList(cmd) }, "abx context list")
	add("show [NAME]", "Every setting, and where it comes from", words(0, 1), a.contextShow, "abx context show --json")
	add("remove NAME", "Forget a context and its key", words(1, 1), a.reports(a.contextRemove), "abx context remove prod")
	add("rename OLD NEW", "Give a context another name", words(2, 2), a.reports(a.contextRename), "abx context rename prod production")
	return cmd
}

// annotationExamples holds the example lines of a command.
const annotationExamples = "examples"

// words checks the number of words of a command that is not a resource.
func words(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return clierr.New(clierr.MissingValue, "%s needs more words: %s", cmd.CommandPath(), strings.TrimSuffix(cmd.UseLine(), " [flags]")).
				Hint(strings.SplitN(cmd.Annotations[annotationExamples], "\n", 2)[0])
		case len(args) > high:
			return clierr.New("TOO_MANY_WORDS", "%s has no use for %q", cmd.CommandPath(), args[high]).Hint(cmd.CommandPath() + " --help")
		}
		return nil
	}
}

func (a *App) contextNames() []string {
	f, err := config.Load(a.configPath())
	if err != nil {
		return nil
	}
	return f.Names()
}

// saved returns the file of the contexts, and the store of their keys.
func (a *App) saved() (string, *credential.Store, error) {
	path := a.configPath()
	store, err := credential.New(path, a.Getenv)
	return path, store, err
}

// contextReport is what a context command did, for programs.
type contextReport struct {
	Context    string             `json:"context"`
	Done       string             `json:"done"`
	Address    string             `json:"address,omitempty"`
	Credential *config.Credential `json:"credential,omitempty"`
	Current    string             `json:"current,omitempty"`
}

// reportFields are the members of a contextReport.
var reportFields = []string{"context", "done", "address", "credential", "current"}

// reporting reads how to print a report, and which fields of it.
func (a *App) reporting(cmd *cobra.Command) (printing, []field, error) {
	p, err := a.printing(cmd)
	if err != nil {
		return p, nil, err
	}
	var fields []field
	for _, path := range p.fields {
		if first, _, _ := strings.Cut(path, "."); !slices.Contains(reportFields, first) {
			return p, nil, unknownField(path, reportFields)
		}
		fields = append(fields, pathField(path))
	}
	return p, fields, nil
}

// reports is a command that changes the contexts and then reports: what cannot be printed is refused before it.
func (a *App) reports(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if _, _, err := a.reporting(cmd); err != nil {
			return err
		}
		return run(cmd, args)
	}
}

// report prints what was done: as lines for a person, as JSON for a program.
func (a *App) report(cmd *cobra.Command, r contextReport, lines ...string) error {
	p, fields, err := a.reporting(cmd)
	if err != nil {
		return err
	}
	if p.machine() || p.fields != nil {
		value, err := toDocument(r)
		if err != nil {
			return err
		}
		return a.object(cmd.Context(), p, value, fields, r.Context)
	}
	for _, l := range lines {
		if l != "" {
			if err := a.line(l); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkContextName(name string) error {
	if name == "" || len(name) > 64 || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}) {
		return clierr.New(clierr.InvalidValue, "%q cannot be the name of a context", name).
			Hint("a name is made of letters, digits, dots, dashes and underscores, at most 64")
	}
	return nil
}

// contextSet saves what was given, and keeps the rest of an existing context.
func (a *App) contextSet(cmd *cobra.Command, args []string) error {
	name := args[0]
	if err := checkContextName(name); err != nil {
		return err
	}
	key, err := a.givenKey(cmd)
	if err != nil {
		return err
	}
	path, store, err := a.saved()
	if err != nil {
		return err
	}
	var saved config.Context
	current := ""
	err = config.Edit(path, func(f *config.File) error {
		c := f.Contexts[name]
		if err := applyFlags(cmd, &c); err != nil {
			return err
		}
		if c.Address() == "" {
			return clierr.New(clierr.MissingValue, "context %q has no address", name).Hint("abx context set " + name + " --endpoint URL --api-key-stdin < KEYFILE")
		}
		if key != "" {
			old := c.Credential
			if c.Credential, err = store.Save(cmd.Context(), name, c.Address(), key); err != nil {
				return err
			}
			c.APIKey = ""
			if old != nil && (old.Store != c.Credential.Store || old.Address != c.Credential.Address) {
				_ = store.Delete(cmd.Context(), name, old) // the new one is in place; a leftover harms nobody
			}
		}
		f.Contexts[name] = c
		if len(f.Contexts) == 1 {
			f.Current = name
		}
		saved, current = c, f.Current
		return nil
	})
	if err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("saved context %s: %s", name, saved.Address())}
	switch {
	case key != "":
		lines = append(lines, "the key is in the "+store.Place(saved.Credential.Store))
	case saved.Credential == nil && saved.APIKey == "":
		lines = append(lines, "it has no key yet: abx context set "+name+" --api-key-stdin < KEYFILE")
	case saved.Credential != nil && saved.Credential.Address != saved.Address():
		lines = append(lines, "its key was saved for "+saved.Credential.Address+" and does not go to the new address: abx context set "+name+" --api-key-stdin < KEYFILE")
	}
	if current != name {
		lines = append(lines, "to make it the current one: abx context use "+name)
	}
	return a.report(cmd, contextReport{name, "saved", saved.Address(), saved.Credential, current}, append(lines, "check it: abx whoami --context "+name)...)
}

// givenKey is the key on the command line or standard input; empty when there is none.
func (a *App) givenKey(cmd *cobra.Command) (string, error) {
	if fromStdin, _ := cmd.Flags().GetBool("api-key-stdin"); fromStdin {
		if cmd.Flags().Changed("api-key") {
			return "", clierr.New(clierr.InvalidValue, "--api-key and --api-key-stdin both give a key").Hint("use --api-key-stdin")
		}
		return a.readKey()
	}
	key, _ := cmd.Flags().GetString("api-key")
	if !cmd.Flags().Changed("api-key") {
		return "", nil
	}
	return key, credential.Check(key)
}

// applyFlags writes the given flags into c. An empty value clears a setting, and a new
// --endpoint ends the direct mode that --cluster-api began.
func applyFlags(cmd *cobra.Command, c *config.Context) error {
	set := func(flag string, into *string) bool {
		if !cmd.Flags().Changed(flag) {
			return false
		}
		*into, _ = cmd.Flags().GetString(flag)
		return true
	}
	if set("endpoint", &c.Endpoint) && c.Endpoint != "" {
		if err := config.CheckAddress(c.Endpoint, "--endpoint"); err != nil {
			return err
		}
		c.Endpoint, c.ClusterAPI = config.NormalizeAddress(c.Endpoint), ""
	}
	if set("cluster-api", &c.ClusterAPI) && c.ClusterAPI != "" {
		if err := config.CheckAddress(c.ClusterAPI, "--cluster-api"); err != nil {
			return err
		}
		c.ClusterAPI = config.NormalizeAddress(c.ClusterAPI)
	}
	set("cluster", &c.Cluster)
	set("ca-file", &c.CAFile)
	set("auth-scheme", &c.AuthScheme)
	for _, valid := range append([]string{""}, config.AuthSchemes...) {
		if c.AuthScheme == valid {
			return nil
		}
	}
	return clierr.New(clierr.InvalidValue, "the auth scheme %q does not exist", c.AuthScheme).Choices(config.AuthSchemes, "")
}

func (a *App) contextUse(cmd *cobra.Command, args []string) error {
	var c config.Context
	if err := config.Edit(a.configPath(), func(f *config.File) (err error) {
		if c, err = f.Get(args[0]); err == nil {
			f.Current = args[0]
		}
		return err
	}); err != nil {
		return err
	}
	return a.report(cmd, contextReport{args[0], "current", c.Address(), c.Credential, args[0]}, "the current context is "+args[0]+": "+c.Address())
}

func (a *App) contextRemove(cmd *cobra.Command, args []string) error {
	path, store, err := a.saved()
	if err != nil {
		return err
	}
	var removed config.Context
	var left []string
	wasCurrent := false
	if err := config.Edit(path, func(f *config.File) error {
		if removed, err = f.Get(args[0]); err != nil {
			return err
		}
		delete(f.Contexts, args[0])
		if wasCurrent = f.Current == args[0]; wasCurrent {
			f.Current = "" // another platform must not become the target without being chosen
		}
		left = f.Names()
		return nil
	}); err != nil {
		return err
	}
	if removed.Credential != nil {
		if err := store.Delete(cmd.Context(), args[0], removed.Credential); err != nil {
			a.note("%v", err)
		}
	}
	lines := []string{"removed context " + args[0]}
	if wasCurrent && len(left) > 0 {
		lines = append(lines, "no context is current now: abx context use "+strings.Join(left, "|"))
	}
	return a.report(cmd, contextReport{Context: args[0], Done: "removed"}, lines...)
}

func (a *App) contextRename(cmd *cobra.Command, args []string) error {
	from, to := args[0], args[1]
	if err := checkContextName(to); err != nil {
		return err
	}
	path, store, err := a.saved()
	if err != nil {
		return err
	}
	var c config.Context
	var old *config.Credential
	if err := config.Edit(path, func(f *config.File) error {
		if c, err = f.Get(from); err != nil {
			return err
		}
		if _, taken := f.Contexts[to]; taken {
			return clierr.New(clierr.Conflict, "there is a context %q already", to).Hint("abx context remove " + to)
		}
		if old = c.Credential; old != nil {
			key, err := store.Load(cmd.Context(), from, old)
			if err != nil {
				return err
			}
			if c.Credential, err = store.Save(cmd.Context(), to, old.Address, key); err != nil {
				return err
			}
		}
		delete(f.Contexts, from)
		f.Contexts[to] = c
		if f.Current == from {
			f.Current = to
		}
		return nil
	}); err != nil {
		return err
	}
	if old != nil {
		if err := store.Delete(cmd.Context(), from, old); err != nil {
			a.note("%v", err)
		}
	}
	return a.report(cmd, contextReport{to, "renamed", c.Address(), c.Credential, ""}, "context "+from+" is called "+to+" now")
}

func (a *App) contextList(cmd *cobra.Command) error {
	p, err := a.printing(cmd)
	if err != nil {
		return err
	}
	f, err := config.Load(a.configPath())
	if err != nil {
		return err
	}
	fields, err := contextFields(p)
	if err != nil {
		return err
	}
	rows := []row{}
	items := []any{}
	for _, name := range f.Names() {
		c := f.Contexts[name]
		mode := "console"
		if c.ClusterAPI != "" {
			mode = "cluster-api"
		}
		item := map[string]any{"name": name, "current": name == f.Current, "address": c.Address(), "mode": mode, "cluster": c.Cluster, "key": keyPlace(c)}
		if c.Credential != nil && c.Credential.ID != "" {
			item["credentialId"] = c.Credential.ID
		}
		rows = append(rows, row{value: item})
		if p.fields != nil {
			item = picked(fields, row{value: item})
		}
		items = append(items, item)
	}
	mark := func(v any) string { // which context is current, for a person
		return map[bool]string{true: "*"}[v == true]
	}
	switch {
	case p.query == nil && p.format == output.CSV:
		return output.WriteCSV(a.Out, headings(fields), contextCells(fields, rows, output.Plain, mark))
	case p.query == nil && p.format == output.Name:
		for _, name := range f.Names() {
			if err := a.line(name); err != nil {
				return err
			}
		}
		return nil
	case p.machine():
		return a.document(cmd.Context(), p, map[string]any{"items": items, "total": len(items), "current": f.Current})
	case len(rows) == 0:
		return a.print("no contexts yet\nhint: abx context set <name> --endpoint URL --api-key-stdin < KEYFILE\n")
	}
	if err := output.WriteTable(a.Out, headings(fields), contextCells(fields, rows, output.Cell, mark), p.style); err != nil {
		return err
	}
	return a.print("\nhint: abx context use <name>\nhint: abx context show <name>\n")
}

// contextColumns are the columns of the list of contexts.
var contextColumns = []string{"current", "name", "address", "mode", "cluster", "key"}

// contextFields are the columns, or those that --fields names.
func contextFields(p printing) ([]field, error) {
	names := contextColumns
	if p.fields != nil {
		names = p.fields
	}
	var fields []field
	for _, name := range names {
		if !slices.Contains(contextColumns, name) {
			return nil, unknownField(name, contextColumns)
		}
		fields = append(fields, pathField(name))
	}
	return fields, nil
}

// contextCells are the cells of the list, with a mark where other tables would say true or false.
func contextCells(fields []field, rows []row, show, mark func(any) string) [][]string {
	return cells(fields, rows, func(v any) string {
		if _, isSwitch := v.(bool); isSwitch {
			return mark(v)
		}
		return show(v)
	})
}

func keyPlace(c config.Context) string {
	switch {
	case c.Credential != nil:
		return c.Credential.Store
	case c.APIKey != "":
		return "config file"
	}
	return "none"
}
