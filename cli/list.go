package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

// tableLimit is how many rows a table shows without --limit.
const tableLimit = 200

// list is a list read, ready to be printed.
type list struct {
	addr     registry.Address
	values   []any // whole objects, for JSON
	rows     []row // expanded, for tables
	fields   []field
	total    int // rows that match, whether shown or not
	failures []clusterFailure
	page     string // console page
	cluster  string // that answered, when a console was asked
	repeat   string // the flags that repeat the choice of a cluster
	again    string // the command that reads the same list, without its limit
	note     string // what else a table should say
}

// truncated says that a limit cut a list, and how to get the rest.
type truncated struct {
	Shown int    `json:"shown"`
	Total int    `json:"total"`
	Next  string `json:"next"`
}

// readList reads and prints a collection.
func (a *App) readList(cmd *cobra.Command, addr registry.Address, p printing, l listing) error {
	fields, err := a.fields(addr.Resource, a.rowsOf(addr.Resource), p, l.allClusters, columnFields(addr.Resource, p.wide))
	if err != nil {
		return err
	}
	s, err := a.connect(cmd)
	if err != nil {
		return err
	}
	defer s.close()
	if l.watch {
		return a.watchList(cmd, s, addr, p, l, fields)
	}
	out := &list{addr: addr, fields: fields, again: again(cmd, addr.Words())}
	if l.allClusters {
		err = a.listEverywhere(cmd.Context(), s, out, l)
	} else {
		err = a.listOne(cmd.Context(), s, out, l, p)
	}
	if err != nil {
		return err
	}
	if err := a.printList(cmd.Context(), p, l, out); err != nil {
		return err
	}
	return partial(out.failures)
}

// listOne reads the list from the one cluster that is meant.
func (a *App) listOne(ctx context.Context, s *session, out *list, l listing, p printing) error {
	api, err := s.listAPI(ctx, out.addr.Resource)
	if err != nil {
		return err
	}
	all, err := a.fetch(ctx, api, out.addr, l.filters, fetchLimit(out.addr.Resource, l, p))
	if err != nil {
		e := clierr.From(err)
		if e.Code == clierr.NotFound && s.settings.Cluster.Value != "" {
			return e.Hint("abx clusters")
		}
		return a.missing(shortList(e, out, l), out.addr)
	}
	out.take(all, l, "")
	out.page, out.cluster = s.page(out.addr), s.cluster
	if s.settings.Cluster.Value != "" {
		out.repeat = " --cluster " + s.cluster
	}
	if p.format == output.Table && p.query == nil {
		out.note = a.sizingNote(ctx, api, out.addr)
	}
	return nil
}

// shortList adds to a list with fewer rows than the server counts the command that takes those.
func shortList(e *clierr.Error, out *list, l listing) error {
	var rows errRows
	switch {
	case !errors.As(e, &rows) || rows == 0 || out.addr.Resource.List.Expand != "":
		return e
	case len(l.filters) > 0 || l.sort != nil: // these need every row
		return e.Hint(fmt.Sprintf("take what is there: abx %s --limit %d", quoteWords(out.addr.Words()), rows))
	}
	return e.Hint(fmt.Sprintf("take what is there: %s --limit %d", out.again, rows))
}

// listAPI is where a list is read. The clusters of a console are the console's own list.
func (s *session) listAPI(ctx context.Context, r *registry.Resource) (*client.Client, error) {
	if r.Platform && !s.settings.Direct() && s.cluster == "" {
		return s.deploy.At(s.settings.Address() + "/api"), nil
	}
	return s.api(ctx)
}

// fetchLimit is how many rows have to be read: all of them when rows are chosen or sorted here.
func fetchLimit(r *registry.Resource, l listing, p printing) int {
	if len(l.filters) > 0 || l.sort != nil || r.List.Expand != "" {
		return -1
	}
	if l.limit < 0 && p.format == output.Table && p.query == nil {
		return tableLimit
	}
	return l.limit
}

// take adds what a cluster answered, filtered.
func (o *list) take(all found, l listing, cluster string) {
	matched := 0
	for _, v := range all.values {
		expanded := expand(o.addr.Resource.List, v, cluster)
		kept := slices.DeleteFunc(expanded, func(r row) bool {
			return slices.ContainsFunc(l.filters, func(f filterArg) bool { return !f.matches(r) })
		})
		if len(kept) == 0 {
			continue
		}
		matched++
		for i := range kept {
			kept[i].object = len(o.values)
		}
		o.rows = append(o.rows, kept...)
		o.values = append(o.values, v)
	}
	if len(l.filters) == 0 && all.total > len(all.values) {
		matched = all.total
	}
	o.total += matched
}

// printList prints a list in the format asked for.
func (a *App) printList(ctx context.Context, p printing, l listing, o *list) error {
	if p.machine() && (p.query != nil || p.format == output.JSON || p.format == output.YAML || p.format == output.NDJSON) {
		return a.printObjects(ctx, p, l, o)
	}
	if l.sort != nil {
		output.SortBy(o.rows, l.sort.get, l.descending)
	}
	total := o.total
	if o.addr.Resource.List.Expand != "" {
		total = len(o.rows)
	}
	limit := l.limit
	if limit < 0 && p.format == output.Table {
		limit = tableLimit
	}
	rows := o.rows
	if limit >= 0 && len(rows) > limit {
		rows = rows[:limit]
	}
	cut := o.cut(len(rows), total)
	switch p.format {
	case output.CSV:
		if err := output.WriteCSV(a.Out, headings(o.fields), cells(o.fields, rows, output.Plain)); err != nil {
			return err
		}
		return a.noteCut(cut)
	case output.Name:
		for _, r := range rows {
			id := rowID(o.addr.Resource, r.value)
			if id == "" {
				id = output.Plain(o.fields[0].get(r))
			}
			if err := a.line(id); err != nil {
				return err
			}
		}
		return a.noteCut(cut)
	}
	return a.printTable(p, o, rows, total, cut)
}

// printObjects prints a list for programs that read structure.
func (a *App) printObjects(ctx context.Context, p printing, l listing, o *list) error {
	items := o.items(p, l)
	shown := items
	if l.limit >= 0 && len(shown) > l.limit {
		shown = shown[:l.limit]
	}
	cut := o.cut(len(shown), o.total)
	if p.format == output.NDJSON && p.query == nil {
		for _, item := range shown {
			if err := output.WriteJSON(a.Out, item); err != nil {
				return err
			}
		}
		return a.noteCut(cut)
	}
	document := map[string]any{"items": append([]any{}, shown...), "total": o.total}
	if cut != nil {
		document["truncated"] = map[string]any{"shown": cut.Shown, "total": cut.Total, "next": cut.Next}
	}
	if len(o.failures) > 0 {
		document["failed"] = failuresJSON(o.failures)
	}
	return a.document(ctx, p, document)
}

// items are the objects of the list, sorted, with --fields or whole.
func (o *list) items(p printing, l listing) []any {
	var first []row // the first row of each object
	for _, r := range o.rows {
		if n := len(first); n == 0 || first[n-1].object != r.object {
			first = append(first, r)
		}
	}
	if l.sort != nil {
		output.SortBy(first, l.sort.get, l.descending)
	}
	items := make([]any, 0, len(first))
	for _, r := range first {
		items = append(items, o.item(r, p, l.allClusters))
	}
	return items
}

func (o *list) item(r row, p printing, clusters bool) any {
	if p.fields != nil {
		return picked(o.fields, r)
	}
	object, isObject := r.value.(map[string]any)
	if !isObject {
		object = map[string]any{o.addr.Resource.Columns[0].ID: r.value}
	}
	if clusters {
		object["cluster"] = r.cluster
	}
	return object
}

// cut says what a limit left out; nil when it left out nothing.
func (o *list) cut(shown, total int) *truncated {
	if shown >= total {
		return nil
	}
	return &truncated{shown, total, fmt.Sprintf("%s --limit %d", o.again, total)}
}

// again is the command line of cmd for the same address, without its limit and without a key.
func again(cmd *cobra.Command, words []string) string {
	return "abx " + quoteWords(words) + writtenFlags(cmd, func(f *pflag.Flag) bool { return f.Name != "limit" })
}

// writtenFlags are the flags that were given and are kept, as they are typed. A key is never repeated.
func writtenFlags(cmd *cobra.Command, keep func(*pflag.Flag) bool) string {
	var b strings.Builder
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch values, isList := f.Value.(pflag.SliceValue); {
		case f.Name == "api-key" || f.Name == "api-key-stdin" || !keep(f):
		case isList:
			for _, v := range values.GetSlice() {
				b.WriteString(" --" + f.Name + " " + quote(v))
			}
		case f.Value.Type() == "bool" && f.Value.String() == "true":
			b.WriteString(" --" + f.Name)
		default:
			b.WriteString(" --" + f.Name + "=" + quote(f.Value.String()))
		}
	})
	return b.String()
}

// noteCut says on standard error that a limit cut a format with no place to say it in.
func (a *App) noteCut(cut *truncated) error {
	if cut != nil {
		a.note("%d of %d rows; all of them: %s", cut.Shown, cut.Total, cut.Next)
	}
	return nil
}

func headings(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.id
	}
	return names
}

func cells(fields []field, rows []row, show func(any) string) [][]string {
	table := make([][]string, len(rows))
	for i, r := range rows {
		table[i] = make([]string, len(fields))
		for j, f := range fields {
			table[i][j] = show(f.get(r))
		}
	}
	return table
}

// line prints one line of text that may come from the server.
func (a *App) line(s string) error {
	_, err := fmt.Fprintln(a.Out, text.Line(s))
	return err
}

// quote makes a word safe to paste into a shell.
func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:@%+,<>", r)) || r == '<' || r == '>'
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func quoteWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}
