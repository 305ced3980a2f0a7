package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
	Name     string `json:"name"`
	Describe string `json:"describe"`
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
	Form          string `json:"form"`
	Describe      string `json:"describe,omitempty"`
	Body          string `json:"body,omitempty"`
	DryRun        bool   `json:"dryRun,omitempty"`
	Approval      string `json:"approval,omitempty"`
	NeverForAgent string `json:"neverForAgent,omitempty"`
}

// compactShape maps a field to its type and what it is. An only key "=" names a
// component of the same shape.
type compactShape map[string]string

const schemaNotes = "field: type, then what it is. ! required, * fixed at create, = same shape as. A capitalised type is another schema here. --schema on a command has all of it: patterns, defaults, what to do instead of changing a fixed field."

// agentContextCommand is `abx agent-context [<resource>]`. It needs no configuration.
func (a *App) agentContextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent-context [RESOURCE]",
		Short: "The whole command line as one JSON document, for an agent",
		Args:  words(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.printing(cmd)
			if err != nil {
				return err
			}
			if p.fields != nil || p.format == output.CSV || p.format == output.Name {
				return clierr.New(clierr.InvalidValue, "agent-context is one JSON document").Hint("use --jq to pick from it")
			}
			document := a.agentContext("")
			if len(args) == 1 {
				if a.Index.Find(args[0]) == nil {
					return a.unknownContextResource(args[0])
				}
				document = a.agentContext(args[0])
			}
			if p.query == nil && p.format != output.YAML {
				return output.WriteJSON(a.Out, document)
			}
			value, err := toDocument(document)
			if err != nil {
				return err
			}
			return a.document(cmd.Context(), p, value)
		},
		ValidArgsFunction: func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return matching(a.plurals(), prefix), cobra.ShellCompDirectiveNoFileComp
		},
		Annotations: map[string]string{annotationExamples: "abx agent-context # everything\nabx agent-context envs # one resource"},
	}
	addFlags(cmd, groupOutput)
	return cmd
}

func (a *App) plurals() []string {
	var names []string
	for i := range a.Index.Resources {
		names = append(names, a.Index.Resources[i].Plural)
	}
	return names
}

func (a *App) unknownContextResource(word string) error {
	names := a.plurals()
	return clierr.New(clierr.UnknownResource, "there is no resource %q", word).Choices(names, registry.Suggest(word, names))
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
	for _, cmd := range a.Command().Commands() {
		if a.Index.Find(cmd.Name()) == nil && !cmd.Hidden {
			c.Commands = append(c.Commands, commandInfo{strings.TrimSuffix(cmd.Use, " [flags]"), cmd.Short})
			for _, sub := range cmd.Commands() {
				c.Commands = append(c.Commands, commandInfo{cmd.Name() + " " + sub.Use, sub.Short})
			}
		}
	}
	for _, f := range flagTable() {
		c.Flags = append(c.Flags, flagInfo{"--" + f.Name, f.Arg, f.Values, strings.TrimPrefix(belongsTo(f), "--"+f.Name+" is for "), f.Help})
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
		info.Views[v.Name] = firstSentence(v.Describe)
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
		w := &writeInfo{Form: form, Describe: firstSentence(about), DryRun: op.QueryParam("dryRun") != nil, Approval: op.Approval, NeverForAgent: never}
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
