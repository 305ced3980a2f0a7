package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// agentContextVersion is the version of the document's own shape. Members may be added
// under the same version; none is renamed or removed.
const agentContextVersion = 1

// agentContext is the whole command line as data (docs/agent-context.schema.json).
type agentContext struct {
	SchemaVersion int                     `json:"schemaVersion"`
	Tool          string                  `json:"tool"`
	Version       string                  `json:"version"`
	SpecVersion   string                  `json:"specVersion"`
	Describe      string                  `json:"describe"`
	Grammar       *grammarInfo            `json:"grammar,omitempty"`
	Commands      []commandInfo           `json:"commands,omitempty"`
	Flags         []flagInfo              `json:"flags,omitempty"`
	Environment   []envInfo               `json:"environment,omitempty"`
	Auth          string                  `json:"auth,omitempty"`
	Output        *outputInfo             `json:"output,omitempty"`
	ExitCodes     []exitInfo              `json:"exitCodes,omitempty"`
	Errors        string                  `json:"errors,omitempty"`
	Roots         []string                `json:"roots,omitempty"`
	Resources     []resourceInfo          `json:"resources"`
	SchemaNotes   string                  `json:"schemaNotes"`
	Schemas       map[string]compactShape `json:"schemas"`
}

type grammarInfo struct {
	Read  []string `json:"read"`
	Write []string `json:"write"`
	Notes []string `json:"notes"`
}

type commandInfo struct {
	Name     string   `json:"name"`
	Describe string   `json:"describe"`
	Forms    []string `json:"forms,omitempty"` // of a verb that was asked for by name
	Flags    []string `json:"flags,omitempty"`
}

type flagInfo struct {
	Name     string   `json:"name"`
	Value    string   `json:"value,omitempty"`
	Values   []string `json:"values,omitempty"`
	For      string   `json:"for"`
	Describe string   `json:"describe"`
}

type envInfo struct {
	Name     string `json:"name"`
	Flag     string `json:"flag,omitempty"`
	Describe string `json:"describe"`
}

type outputInfo struct {
	Formats []string `json:"formats"`
	List    string   `json:"list"`
	Item    string   `json:"item"`
	Write   string   `json:"write"`
}

type exitInfo struct {
	Code       int      `json:"code"`
	Meaning    string   `json:"meaning"`
	ErrorCodes []string `json:"errorCodes,omitempty"`
}

type resourceInfo struct {
	Plural   string                `json:"plural"`
	Kind     string                `json:"kind"`
	Form     string                `json:"form"`
	Describe string                `json:"describe"`
	Note     string                `json:"note,omitempty"`
	Admin    bool                  `json:"admin,omitempty"`
	Gate     string                `json:"gate,omitempty"`
	Readable string                `json:"readable"` // list, item or both
	Watch    bool                  `json:"watch,omitempty"`
	Flags    map[string][]string   `json:"flags"` // of the list, of one item, and of each view, besides those that connect
	Columns  []string              `json:"columns"`
	Wide     []string              `json:"wide,omitempty"` // columns that need --wide
	Filters  map[string][]string   `json:"filters,omitempty"`
	Detail   []string              `json:"detail,omitempty"`
	Children []string              `json:"children,omitempty"`
	Views    map[string]string     `json:"views,omitempty"`
	Writes   map[string]*writeInfo `json:"writes,omitempty"`
	Row      string                `json:"row,omitempty"`  // schema of a list's rows
	Item     string                `json:"item,omitempty"` // schema of one object
	Examples []string              `json:"examples,omitempty"`
	Docs     string                `json:"docs,omitempty"`
}

type writeInfo struct {
	Form          string   `json:"form"`
	Describe      string   `json:"describe,omitempty"`
	Body          string   `json:"body,omitempty"`
	DryRun        bool     `json:"dryRun,omitempty"`
	Approval      string   `json:"approval,omitempty"`
	NeverForAgent string   `json:"neverForAgent,omitempty"`
	Flags         []string `json:"flags"`
}

// compactShape maps a field to its type and what it is. An only key "=" names a
// component of the same shape.
type compactShape map[string]string

const schemaNotes = "field: type, then what it is. ! required, * fixed at create, = same shape as. A capitalised type is another schema here. --schema on a command has all of it: patterns, defaults, what to do instead of changing a fixed field."

// agentContextCommand is `abx agent-context [<resource>]`. It needs no configuration.
func (a *App) agentContextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent-context [RESOURCE|COMMAND]",
		Short: "The whole command line as one JSON document, for an agent",
		Args:  words(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.printing(cmd)
			if err != nil {
				return err
			}
			document, err := a.contextOf(args)
			if err != nil {
				return err
			}
			if p.query == nil && p.format != output.YAML {
				return output.WriteJSON(a.Out, document)
			}
			return a.local(cmd.Context(), p, document, "")
		},
		ValidArgsFunction: func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return matching(a.contextWords(), prefix), cobra.ShellCompDirectiveNoFileComp
		},
		Annotations: map[string]string{annotationExamples: "abx agent-context # everything\nabx agent-context envs # one resource\nabx agent-context upgrade # one command"},
	}
	addOutput(cmd, 0, valueFormats)
	return cmd
}

// contextWords are what agent-context can be narrowed to.
func (a *App) contextWords() []string {
	var names []string
	for i := range a.Index.Resources {
		names = append(names, a.Index.Resources[i].Plural)
	}
	for _, c := range a.Command().Commands() {
		if !c.Hidden && !slices.Contains(names, c.Name()) {
			names = append(names, c.Name())
		}
	}
	return names
}

// contextOf is the document that the words ask for.
func (a *App) contextOf(args []string) (*agentContext, error) {
	names := a.contextWords()
	switch {
	case len(args) == 0:
		return a.agentContext(""), nil
	case a.Index.Find(args[0]) != nil:
		return a.agentContext(args[0]), nil
	case slices.Contains(names, args[0]):
		return a.commandContext(args[0]), nil
	}
	return nil, clierr.New(clierr.UnknownResource, "there is no resource and no command %q", args[0]).Choices(names, registry.Suggest(args[0], names))
}

// commandContext is the document for one command.
func (a *App) commandContext(name string) *agentContext {
	c := a.agentContext(name)
	c.Resources = []resourceInfo{}
	all := a.agentContext("")
	used := map[string]bool{}
	for _, info := range all.Commands {
		if first, _, _ := strings.Cut(info.Name, " "); first != name {
			continue
		}
		if info.Name == name && slices.Contains(a.verbs(), name) {
			for i := range a.Index.Resources {
				for _, f := range a.writeForms(&a.Index.Resources[i]) {
					if strings.HasPrefix(f.name, "abx "+name+" ") {
						info.Forms = append(info.Forms, f.name)
					}
				}
			}
			for _, t := range a.targets(name) {
				for _, flag := range a.flagNames(t) {
					if !slices.Contains(info.Flags, flag) {
						info.Flags = append(info.Flags, flag)
					}
				}
			}
		}
		for _, flag := range info.Flags {
			flag, _, _ = strings.Cut(flag, " ")
			used[flag] = true
		}
		c.Commands = append(c.Commands, info)
	}
	c.Flags = slices.DeleteFunc(all.Flags, func(f flagInfo) bool { return !used[f.Name] })
	return c
}

// flagNames are the flags of a target besides those that connect. A --format that prints only some formats names them.
func (a *App) flagNames(t target) []string {
	names := []string{}
	for _, f := range flagTable() {
		switch {
		case f.Groups&groupGlobal != 0 || !a.takes(t, f):
		case f.Name == "format":
			names = append(names, formatFlag(t.formats()))
		default:
			names = append(names, "--"+f.Name)
		}
	}
	return names
}

func formatFlag(formats []string) string {
	if len(formats) == len(output.Formats) {
		return "--format"
	}
	return "--format " + strings.Join(formats, "|")
}

// commandFlagNames are the flags of a command that is neither a read nor a write, besides those that connect.
func commandFlagNames(cmd *cobra.Command) []string {
	var names []string
	saves := cmd.Annotations[annotationSaves] != ""
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		def := tableFlag(f)
		switch {
		case f.Name == "help" || def != nil && def.Groups&groupGlobal != 0 && !(saves && def.Groups&groupSave != 0):
		case def != nil && f.Name == "format":
			names = append(names, formatFlag(strings.Split(cmd.Annotations[annotationFormats], ", ")))
		default:
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// agentContext builds the document, whole or for one resource.
func (a *App) agentContext(plural string) *agentContext {
	c := &agentContext{
		SchemaVersion: agentContextVersion, Tool: "abx", Version: Version, SpecVersion: a.Index.SpecVersion,
		Describe: "Environments, warm pools and scaling groups that sandboxes are claimed from. Sandboxes themselves are made and driven with the E2B SDK.",
		Schemas:  map[string]compactShape{}, SchemaNotes: schemaNotes,
	}
	if plural == "" {
		a.describeTool(c)
	}
	for i := range a.Index.Resources {
		r := &a.Index.Resources[i]
		if plural == "" || r.Plural == plural {
			c.Resources = append(c.Resources, a.resourceInfo(r, c.Schemas, plural != ""))
		}
	}
	shareShapes(c.Schemas)
	return c
}

func (a *App) describeTool(c *agentContext) {
	c.Grammar = &grammarInfo{
		Read:  []string{"abx <resource>", "abx <resource> <id>", "abx <resource> <id> <child>", "abx <resource> <id> <child> <child-id>", "abx <resource> <id> <view>"},
		Write: []string{"abx create <collection> -f FILE", "abx update <item> -f FILE", "abx delete <item>", "abx scale <pool> --replicas N", "abx approve|deny|promote <item>"},
		Notes: []string{
			"A verb is read in the first position and nowhere else; everything after it is an address.",
			"Never write a body from memory: abx create <collection> --editable prints an example, abx <item> --editable what is there, --schema every field.",
			"An update replaces everything: a field that the file leaves out is removed. What --json prints is not that file.",
			versionKey + " in an editable file is its version; an update of a changed object is refused (CONFLICT).",
			"There are no prompts; --dry-run shows what a write would do.",
			"Ids and values come from output; nothing is guessed: errors name the valid set.",
		},
	}
	root := a.Command()
	for _, cmd := range root.Commands() {
		if a.Index.Find(cmd.Name()) == nil && !cmd.Hidden {
			c.Commands = append(c.Commands, a.commandInfo(cmd))
			for _, sub := range cmd.Commands() {
				c.Commands = append(c.Commands, a.commandInfo(sub))
			}
		}
	}
	for _, f := range flagTable() {
		c.Flags = append(c.Flags, flagInfo{"--" + f.Name, f.Arg, f.Values, a.belongsTo(f), f.Help})
	}
	for _, cmd := range a.others() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && tableFlag(f) == nil {
				_, arg, _ := strings.Cut(ownFlag(f).name, " ")
				c.Flags = append(c.Flags, flagInfo{"--" + f.Name, arg, nil, strings.TrimPrefix(cmd.CommandPath(), "abx "), ownFlag(f).about})
			}
		})
	}
	for _, s := range config.List {
		c.Environment = append(c.Environment, envInfo{s.Env, "--" + s.Flag, s.Help})
	}
	c.Environment = append(c.Environment, extraEnvironment...)
	c.Auth = "A key goes into AGENTBOX_API_KEY or a saved context, never on a command line. It is sent only to the address it was saved for. abx whoami says who it is; mode agent means that platform writes wait for a person (APPROVAL_REQUIRED, exit 8: run again after the decision, or use --wait) or are never allowed (FORBIDDEN_FOR_AGENT, exit 3: stop and hand over)."
	c.Output = &outputInfo{
		Formats: output.Formats,
		List:    `--json: {"items":[…],"total":n}, all pages, after filters; "truncated":{"shown","total","next"} only when --limit cut it`,
		Item:    "--json: the object",
		Write:   "--json: the server's response; --dry-run: {valid, changes[], cascade[], warnings[]}",
	}
	for _, e := range clierr.Exits {
		c.ExitCodes = append(c.ExitCodes, exitInfo{e.Code, e.Meaning, e.Examples})
	}
	c.Errors = `on standard error; with --json one object {"error":{"code","message","hint":[],"status","exitCode","valid":[],"suggestion","approval":{},"requestId"}}, absent keys left out`
	for _, r := range a.Index.Roots() {
		c.Roots = append(c.Roots, r.Plural)
	}
}

// commandInfo describes a command that is no resource. The flags of a verb stand with the resources that it writes.
func (a *App) commandInfo(cmd *cobra.Command) commandInfo {
	info := commandInfo{Name: strings.TrimSuffix(strings.TrimPrefix(cmd.UseLine(), "abx "), " [flags]"), Describe: cmd.Short}
	if !slices.Contains(a.verbs(), cmd.Name()) {
		info.Flags = commandFlagNames(cmd)
	}
	return info
}

// extraEnvironment are variables without a flag.
var extraEnvironment = []envInfo{
	{"AGENTBOX_SESSION_ID", "", "id of this session; an approval may hold for a session"},
	{"AGENTBOX_KEYRING", "", "where context set keeps keys: auto, file or os"},
	{"SSL_CERT_FILE", "", "more certificate authorities, in addition to the system's"},
	{"HTTPS_PROXY", "", "proxy; NO_PROXY excepts hosts"},
	{"NO_COLOR", "", "no colour"},
	{"AGBX_CLI_BASE", "", "where upgrade finds releases, instead of the built-in address"},
	{"AGBX_CLI_PUBLIC_KEY", "", "PEM file of the release key, instead of the built-in one"},
	{"AGBX_NO_UPDATE_NOTICE", "", "1: never say that a newer release is there"},
	{"XDG_CONFIG_HOME", "", "contexts are in abx/config.json below it"},
}

func (a *App) resourceInfo(r *registry.Resource, schemas map[string]compactShape, whole bool) resourceInfo {
	info := resourceInfo{
		Plural: r.Plural, Kind: r.Kind, Form: "abx " + a.Index.Form(r), Describe: r.Summary, Note: r.Note, Admin: r.Admin, Gate: r.Gate,
		Children: r.Children, Docs: docsURL(a.Index, r),
	}
	if whole {
		info.Describe = strings.TrimSpace(r.Summary + " " + r.Describe)
	}
	switch {
	case r.List != nil && r.Item != nil:
		info.Readable = "both"
	case r.Item != nil:
		info.Readable = "item"
	default:
		info.Readable = "list"
	}
	info.Flags = map[string][]string{}
	for _, t := range targets("", r) {
		info.Flags[t.name()] = a.flagNames(t)
	}
	info.Watch = r.List != nil && r.List.Watch
	for _, c := range r.Columns {
		if c.Wide {
			info.Wide = append(info.Wide, c.ID)
		} else {
			info.Columns = append(info.Columns, c.ID)
		}
	}
	for _, f := range r.Filters {
		if info.Filters == nil {
			info.Filters = map[string][]string{}
		}
		info.Filters[f.Key] = append([]string{}, f.Values...)
	}
	for _, d := range r.Detail {
		info.Detail = append(info.Detail, d.ID)
	}
	for _, t := range r.Texts {
		info.Detail = append(info.Detail, t.ID)
	}
	for _, v := range r.Views {
		if info.Views == nil {
			info.Views = map[string]string{}
		}
		info.Views[v.Name] = viewSummary(v)
	}
	a.writeInfos(r, &info, schemas)
	if s := a.rowSchema(r); s != nil && s.Name != "" {
		info.Row = s.Name
		a.addSchema(s.Name, schemas, false, true)
	}
	if s := a.itemSchema(r); s != nil && s.Name != "" {
		info.Item = s.Name
		a.addSchema(s.Name, schemas, false, true)
	}
	for _, e := range r.Examples {
		info.Examples = append(info.Examples, exampleLine(e))
	}
	return info
}

func (a *App) writeInfos(r *registry.Resource, info *resourceInfo, schemas map[string]compactShape) {
	add := func(name, operation, about, never, form string, body bool) {
		op := a.Index.Operation(operation)
		w := &writeInfo{Form: form, Describe: firstSentence(about), DryRun: op.QueryParam("dryRun") != nil, Approval: op.Approval, NeverForAgent: never,
			Flags: a.flagNames(target{verb: name, resource: r, item: name != "create"})}
		if body && op.Request != nil {
			w.Body = op.Request.Schema
			a.addSchema(w.Body, schemas, true, true)
		}
		if info.Writes == nil {
			info.Writes = map[string]*writeInfo{}
		}
		info.Writes[name] = w
	}
	forms := a.writeForms(r)
	for i, v := range r.Verbs {
		add(v.Name, v.Operation, v.Describe, v.AgentForbidden, forms[i].name, v.Sets == "")
	}
	for i, act := range r.Actions {
		add(act.Name, act.Operation, act.Describe, act.AgentForbidden, forms[len(r.Verbs)+i].name, false)
	}
}

// addSchema adds a component and what it refers to, each once.
func (a *App) addSchema(name string, schemas map[string]compactShape, describe, deep bool) {
	if _, done := schemas[name]; done {
		return
	}
	s := a.Index.Schema(name)
	if s == nil {
		return
	}
	fields := compactShape{}
	schemas[name] = fields
	for _, f := range a.fieldInfos(s) {
		t := f.Type
		if f.Required && describe {
			t += "!"
		}
		if f.Fixed && describe {
			t += "*"
		}
		if describe && f.Describe != "" {
			t += " " + firstSentence(f.Describe)
		}
		fields[f.Name] = t
		if f.Ref != "" && deep {
			a.addSchema(f.Ref, schemas, describe, deep)
		}
	}
}

// shareShapes replaces a shape that occurs twice, as in create and update, by a reference.
func shareShapes(schemas map[string]compactShape) {
	names := slices.Sorted(maps.Keys(schemas))
	for i, name := range names {
		for _, earlier := range names[:i] {
			if len(schemas[name]) > 3 && maps.Equal(schemas[earlier], schemas[name]) {
				schemas[name] = compactShape{"=": earlier}
				break
			}
		}
	}
}
