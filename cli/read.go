package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// readCommand is `abx <resource> …`.
func (a *App) readCommand(r *registry.Resource) *cobra.Command {
	cmd := &cobra.Command{
		Use:   r.Plural,
		Short: r.Summary,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.read(cmd, append([]string{r.Plural}, args...))
		},
		ValidArgsFunction: a.completeWords(r.Plural),
	}
	groups := groupGlobal | groupOutput | groupList | groupRead
	if a.hasLogs(r) {
		groups |= groupLogs
	}
	addFlags(cmd, groups)
	a.completeFlags(cmd)
	return cmd
}

// hasLogs reports whether the resource or a child of it has a view of logs.
func (a *App) hasLogs(r *registry.Resource) bool {
	return slices.ContainsFunc(r.Views, func(v registry.View) bool { return v.Renderer == "logs" }) ||
		slices.ContainsFunc(r.Children, func(child string) bool { return a.hasLogs(a.Index.Find(child)) })
}

// read runs a read: everything that needs no network is judged first.
func (a *App) read(cmd *cobra.Command, words []string) error {
	addr, bad := a.Index.ParseAddress(words)
	if bad != nil {
		return addressError(bad)
	}
	if schema, _ := cmd.Flags().GetBool("schema"); schema {
		return a.printReadSchema(cmd, addr)
	}
	_, bad = a.Index.Read(addr)
	if bad != nil {
		return addressError(bad)
	}
	p, err := a.printing(cmd)
	if err != nil {
		return err
	}
	if err := a.checkReadFlags(cmd, addr, p); err != nil {
		return err
	}
	editable, _ := cmd.Flags().GetBool("editable")
	switch {
	case addr.View != nil:
		return a.readView(cmd, addr, p)
	case addr.Collection():
		l, err := a.listing(cmd, addr.Resource)
		if err != nil {
			return err
		}
		return a.readList(cmd, addr, p, l)
	case editable:
		return a.printEditable(cmd, addr)
	}
	return a.readItem(cmd, addr, p)
}

// checkReadFlags refuses flags that mean nothing at this address.
func (a *App) checkReadFlags(cmd *cobra.Command, addr registry.Address, p printing) error {
	given := func(names ...string) string {
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				return name
			}
		}
		return ""
	}
	refuse := func(flag, why, next string) error {
		return clierr.New(clierr.InvalidValue, "--%s %s", flag, why).Hint(next)
	}
	list := addr
	if !addr.Collection() {
		list.IDs, list.View = addr.IDs[:len(addr.IDs)-1], nil
	}
	if !addr.Collection() || addr.View != nil {
		if flag := given("filter", "sort", "limit", "all-clusters", "watch", "wide"); flag != "" {
			return refuse(flag, "is for lists, and this address names one object", "abx "+quoteWords(list.Words())+" --"+flag)
		}
	}
	if addr.View == nil || addr.View.Renderer != "logs" {
		if flag := given("container", "tail", "follow", "source"); flag != "" {
			return refuse(flag, "is for logs", "abx sandboxes <sandbox> logs --"+flag)
		}
	}
	if given("editable") == "" {
		return nil
	}
	switch r := addr.Resource; {
	case addr.View != nil || addr.Collection():
		next := "abx " + quoteWords(list.Words()) + " <" + r.Kind + "> --editable"
		if r.Verb("create") != nil {
			return refuse("editable", "needs one object; to begin a new one", "abx create "+quoteWords(list.Words())+" --editable")
		}
		return refuse("editable", "needs one object", next)
	case r.Item.Editable == "":
		return refuse("editable", "does not exist for a "+r.Kind+": nothing updates one", "abx "+quoteWords(list.Words())+" --help")
	}
	return checkEditable(cmd, p)
}

// checkEditable refuses what --editable has no use for: it prints a whole file, and writes nothing.
func checkEditable(cmd *cobra.Command, p printing) error {
	if p.format == output.CSV || p.format == output.Name || p.format == output.NDJSON || p.query != nil || p.fields != nil {
		return clierr.New(clierr.InvalidValue, "--editable prints a whole file, as JSON or YAML").Hint("leave the other output flags out")
	}
	for _, name := range []string{"file", "dry-run", "wait"} {
		if cmd.Flags().Changed(name) {
			return clierr.New(clierr.InvalidValue, "--editable prints a file and writes nothing, so --%s does not apply", name).Hint("leave one of them out")
		}
	}
	return nil
}

// readItem reads and prints one object.
func (a *App) readItem(cmd *cobra.Command, addr registry.Address, p printing) error {
	r := addr.Resource
	fallback := columnFields(r, true)
	if len(r.Detail) > 0 { // an object has other fields than its row in the list
		fallback = nil
		for _, d := range r.Detail {
			fallback = append(fallback, field{d.ID, func(w row) any { return output.Lookup(w.value, d.Path) }})
		}
	}
	fields, err := a.fields(r, a.itemOf(r), p, false, fallback)
	if err != nil {
		return err
	}
	s, api, err := a.open(cmd)
	if err != nil {
		return err
	}
	defer s.close()
	value, _, err := a.getItem(cmd.Context(), api, addr)
	if err != nil {
		return a.missing(err, addr)
	}
	if p.machine() || p.fields != nil {
		return a.object(cmd.Context(), p, value, fields, addr.ID())
	}
	d := &detail{addr: addr, value: value, page: s.page(addr), cluster: s.cluster}
	if s.settings.Cluster.Value != "" {
		d.repeat = " --cluster " + s.cluster
	}
	d.tables, d.note = a.childTables(cmd.Context(), api, addr)
	return a.printDetail(p, d)
}

// childTables reads the tables of the detail page. One that fails is said to be
// missing; the object itself is there to be shown.
func (a *App) childTables(ctx context.Context, api *client.Client, addr registry.Address) ([]*list, string) {
	var tables []*list
	note := ""
	for _, plural := range addr.Resource.Tables {
		child := a.Index.Find(plural)
		at := registry.Address{Resource: child, Parent: addr.Resource, IDs: addr.IDs}
		all, err := a.fetch(ctx, api, at, nil, tableLimit)
		if err != nil {
			note = "the " + plural + " could not be read: " + err.Error()
			continue
		}
		t := &list{addr: at, fields: columnFields(child, false)}
		t.take(all, listing{limit: -1}, "")
		tables = append(tables, t)
	}
	return tables, note
}

// getItem reads one object; it returns the object and the whole answer.
func (a *App) getItem(ctx context.Context, api *client.Client, addr registry.Address) (any, *client.Response, error) {
	op := a.Index.Operation(addr.Resource.Item.Operation)
	path, err := addr.URLPath(op)
	if err != nil {
		return nil, nil, clierr.New(clierr.Internal, "%v", err)
	}
	answer, err := api.Do(ctx, client.Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return nil, nil, err
	}
	value, err := output.Decode(answer.Body)
	if err != nil {
		return nil, nil, clierr.New(clierr.BadResponse, "%s answered with nothing where a %s was expected", path, addr.Resource.Kind)
	}
	if member := addr.Resource.Item.Unwrap; member != "" {
		inner, ok := output.Lookup(value, member).(map[string]any)
		if !ok {
			return nil, nil, clierr.New(clierr.BadResponse, "the answer has no %q, which is where the %s should be", member, addr.Resource.Kind)
		}
		return inner, answer, nil
	}
	return value, answer, nil
}

// missing adds to a 404 where to look for what exists.
func (a *App) missing(err error, addr registry.Address) error {
	if err == nil {
		return nil
	}
	e := clierr.From(err)
	if e.Code != clierr.NotFound {
		return err
	}
	list := addr
	list.View = nil
	if !addr.Collection() {
		list.IDs = addr.IDs[:len(addr.IDs)-1]
	}
	return e.Hint("abx " + quoteWords(list.Words()))
}

// printEditable prints the file that an update of one object takes. It carries the
// version that was read, so that the update is refused when somebody else was faster.
func (a *App) printEditable(cmd *cobra.Command, addr registry.Address) error {
	s, api, err := a.open(cmd)
	if err != nil {
		return err
	}
	defer s.close()
	_, answer, err := a.getItem(cmd.Context(), api, addr)
	if err != nil {
		return a.missing(err, addr)
	}
	file, err := editable(addr.Resource, answer)
	if err != nil {
		return err
	}
	if asYAML, _ := cmd.Flags().GetString("format"); asYAML == "yaml" {
		return output.WriteYAML(a.Out, file)
	}
	return output.WriteIndented(a.Out, file)
}

// versionKey is the member of an editable file that carries the version it was read
// at. It is taken out before the file is sent and becomes the If-Match header.
const versionKey = "_etag"

// editable takes the update body out of the answer of a read.
func editable(r *registry.Resource, answer *client.Response) (map[string]any, error) {
	whole, err := output.Decode(answer.Body)
	if err != nil {
		return nil, clierr.New(clierr.BadResponse, "the answer cannot be read: %v", err)
	}
	file, ok := output.Lookup(whole, r.Item.Editable).(map[string]any)
	if !ok {
		return nil, clierr.New(clierr.BadResponse, "the server does not say what an update of this %s takes", r.Kind).
			Hint("do not send what --json prints: its fields are others, and what a write leaves out is removed")
	}
	if etag := answer.Header.Get("ETag"); etag != "" {
		file[versionKey] = etag
	}
	return file, nil
}

// decodeInto reads JSON into a struct of known members.
func decodeInto(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return clierr.New(clierr.BadResponse, "the answer has another shape than this release knows: %v", err)
	}
	return nil
}
