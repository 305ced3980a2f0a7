package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

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
	addAddressFlags(cmd, a.readGroups(r))
	a.completeFlags(cmd)
	return cmd
}

// read runs a read: everything that needs no network is judged first.
func (a *App) read(cmd *cobra.Command, words []string) error {
	addr, bad := a.Index.ParseAddress(words)
	if bad != nil {
		return addressError(bad)
	}
	if _, bad = a.Index.Read(addr); bad != nil {
		return addressError(bad)
	}
	if !consoleView(addr) {
		if err := a.checkFlags(cmd, "", addr); err != nil {
			return err
		}
	}
	if schema, _ := cmd.Flags().GetBool("schema"); schema {
		return a.printReadSchema(cmd, addr)
	}
	p, err := a.printing(cmd)
	if err != nil {
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

// consoleView reports whether the address ends in a view that only the console has.
func consoleView(addr registry.Address) bool { return addr.View != nil && addr.View.Operation == "" }

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

// missing adds to a 404 the command that lists what exists.
func (a *App) missing(err error, addr registry.Address) error {
	if err == nil {
		return nil
	}
	e := clierr.From(err)
	if e.Code != clierr.NotFound {
		return err
	}
	switch r := a.absent(e, addr); {
	case r == addr.Resource:
		return e.Hint("abx " + quoteWords(addr.List().Words()))
	case r != nil:
		return e.Hint("abx " + a.Index.Form(r))
	}
	return err
}

// missingKind is how the server begins to say what is not there: env "demo" was not found.
var missingKind = regexp.MustCompile(`^([a-z]+(?:[ -][a-z]+)*) "`)

// absent is the resource that a 404 is about. The server names its kind; an older one only says that something is missing.
func (a *App) absent(e *clierr.Error, addr registry.Address) *registry.Resource {
	r, parent := addr.Resource, addr.Parent
	if m := missingKind.FindStringSubmatch(e.Message); m != nil {
		kind := strings.ReplaceAll(m[1], " ", "-")
		switch named := a.Index.ByKind(kind); {
		case r.Kind == kind || r.Kind == "admin-"+kind:
			return r
		case parent != nil && parent.Kind == kind:
			return parent
		case named != nil:
			return named
		}
	}
	if !addr.Collection() {
		return r
	}
	return parent
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
