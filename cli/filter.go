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

// filterArg is one --filter, checked.
type filterArg struct {
	registry.Filter
	value string
	get   func(row) any
}

// matches applies the filter to a row: exactly for a closed set, otherwise as a
// case-insensitive part of what the cell shows.
func (f filterArg) matches(r row) bool {
	shown := output.Plain(f.get(r))
	if len(f.Values) > 0 {
		if shown == "" && slices.Contains(f.Values, "false") {
			shown = "false" // a switch that is not there is off
		}
		return shown == f.value
	}
	return strings.Contains(strings.ToLower(shown), strings.ToLower(f.value))
}

// parseFilters checks the --filter flags against the resource.
func parseFilters(r *registry.Resource, args []string, clusters bool) ([]filterArg, error) {
	var filters []filterArg
	keys := filterKeys(r)
	if clusters {
		keys = append(keys, clusterField.id)
	}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return nil, clierr.New(clierr.InvalidValue, "--filter %q is not KEY=VALUE", arg).Choices(keys, "").
				Hint("the keys are column headings")
		}
		f := r.Filter(key)
		if clusters && key == clusterField.id {
			f = &registry.Filter{Key: key}
		}
		if f == nil {
			e := clierr.New(clierr.InvalidValue, "%s cannot be filtered by %q", r.Plural, key).
				Choices(keys, registry.Suggest(key, keys))
			if key == clusterField.id {
				e.Hint("with --all-clusters the cluster of a row is a column; without it: --cluster " + quote(value))
			}
			return nil, e
		}
		if len(f.Values) == 0 && value == "" {
			// A part of the cell that is empty is in every cell: the list would look filtered and be whole.
			e := clierr.New(clierr.InvalidValue, "--filter %s has no value, and every row would match", arg).Hint("give the text to look for")
			if f.Path != "" {
				e.Hint("rows without one: --jq '.items[] | select(." + f.Path + " == null)'")
			}
			return nil, e
		}
		if len(f.Values) > 0 && !slices.Contains(f.Values, value) {
			return nil, clierr.New(clierr.InvalidValue, "--filter %s: there is no %s %q", arg, key, value).
				Choices(f.Values, registry.Suggest(value, f.Values))
		}
		get := func(w row) any { return output.Lookup(w.value, f.Path) }
		if c := r.Column(key); clusters && key == clusterField.id {
			get = clusterField.get
		} else if c != nil {
			get = columnField(r, *c).get
		}
		filters = append(filters, filterArg{*f, value, get})
	}
	return filters, nil
}

func filterKeys(r *registry.Resource) []string {
	var keys []string
	for _, f := range r.Filters {
		keys = append(keys, f.Key)
	}
	return keys
}

// listing is what was asked of a list.
type listing struct {
	filters     []filterArg
	sort        *field
	descending  bool
	limit       int // -1: none given
	allClusters bool
	watch       bool
}

// listing reads and checks the list flags.
func (a *App) listing(cmd *cobra.Command, r *registry.Resource) (listing, error) {
	set := cmd.Flags()
	l := listing{limit: -1}
	var args []string
	if list, ok := set.Lookup("filter").Value.(pflag.SliceValue); ok {
		args = list.GetSlice() // GetStringArray takes a single empty filter for none
	}
	var err error
	l.allClusters, _ = set.GetBool("all-clusters")
	if l.filters, err = parseFilters(r, args, l.allClusters); err != nil {
		return l, err
	}
	if c, ok := set.Lookup("limit").Value.(*count); ok && set.Changed("limit") {
		l.limit = c.n
	}
	l.watch, _ = set.GetBool("watch")
	if set.Changed("sort") {
		key, _ := set.GetString("sort")
		name, down := strings.CutPrefix(key, "-")
		f, err := a.findField(r, a.rowsOf(r), name, l.allClusters)
		if err != nil {
			return l, err
		}
		l.sort, l.descending = &f, down
	}
	return l, checkListing(cmd, l)
}

// checkListing refuses flags that exclude each other.
func checkListing(cmd *cobra.Command, l listing) error {
	conflict := func(x, y string) error {
		return clierr.New(clierr.InvalidValue, "%s and %s do not go together", x, y).Hint("leave one of them out")
	}
	switch {
	case l.allClusters && cmd.Flags().Changed("cluster"):
		return conflict("--all-clusters", "--cluster")
	case !l.watch:
		return nil
	case l.allClusters:
		return conflict("--watch", "--all-clusters")
	case l.sort != nil:
		return conflict("--watch", "--sort")
	case l.limit >= 0:
		return conflict("--watch", "--limit")
	}
	return nil
}

// register is what a field can be of: the rows of a list, or one object. They are shaped differently, and what the one shows
// the other may not have.
type register struct {
	schema *registry.Schema // nil when the document does not say
	item   bool
}

func (a *App) rowsOf(r *registry.Resource) register { return register{schema: a.rowSchema(r)} }

func (a *App) itemOf(r *registry.Resource) register {
	return register{schema: a.itemSchema(r), item: true}
}

// findField finds what --fields or --sort names: what the register shows under that name, a column or a detail line that its
// shape has too, or a path of its shape.
func (a *App) findField(r *registry.Resource, of register, name string, clusters bool) (field, error) {
	if clusters && name == clusterField.id {
		return clusterField, nil
	}
	for _, f := range a.namedFields(r, of) {
		if f.id == name {
			return f, nil
		}
	}
	if of.schema != nil && a.hasPath(of.schema, name) {
		return pathField(name), nil
	}
	valid := a.fieldNames(r, of)
	example := "abx " + r.Plural + " --schema"
	if of.item {
		example = "abx " + a.Index.ItemForm(r) + " --schema"
	}
	return field{}, clierr.New(clierr.UnknownField, "there is no field %q on one %s", name, r.Kind).
		Choices(valid, registry.Suggest(name, valid)).Hint("paths such as spec.replicas work too: " + example)
}

// namedFields are the columns and detail lines that the register can show, its own first.
func (a *App) namedFields(r *registry.Resource, of register) []field {
	var columns, details []field
	own := func(item bool) bool { return of.item == item || len(r.Detail) == 0 }
	for _, c := range r.Columns {
		if own(false) || c.Derived == "" && a.hasPath(of.schema, c.Path) {
			columns = append(columns, columnField(r, c))
		}
	}
	for _, d := range r.Detail {
		if own(true) || a.hasPath(of.schema, d.Path) {
			details = append(details, field{d.ID, func(w row) any { return output.Lookup(w.value, d.Path) }})
		}
	}
	if of.item {
		return append(details, columns...)
	}
	return append(columns, details...)
}

// fieldNames are the names that findField knows at the top level.
func (a *App) fieldNames(r *registry.Resource, of register) []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, f := range a.namedFields(r, of) {
		add(f.id)
	}
	if of.schema != nil {
		for _, f := range of.schema.Fields {
			add(f.Name)
		}
	}
	return names
}

// hasPath reports whether the schema has a dotted path.
func (a *App) hasPath(schema *registry.Schema, path string) bool {
	if schema == nil {
		return false
	}
	steps, err := registry.SplitPath(path)
	if err != nil {
		return false
	}
	for _, step := range steps {
		schema = a.Index.Deref(schema)
		if schema == nil {
			return false
		}
		switch schema.Type {
		case registry.TypeMap, registry.TypeAny:
			return true
		}
		f := schema.Field(step)
		if f == nil {
			return false
		}
		schema = &f.Schema
	}
	return true
}

// rowSchema is the schema of a list's rows; nil when it has none.
func (a *App) rowSchema(r *registry.Resource) *registry.Schema {
	if r.List == nil {
		return nil
	}
	s := a.answerSchema(r.List.Operation)
	if s != nil && r.List.Rows != "" {
		s = a.property(s, r.List.Rows)
	}
	if s != nil && s.Type == registry.TypeArray && s.Elem != nil {
		s = a.Index.Deref(s.Elem)
	}
	return s
}

// itemSchema is the schema of one object; nil when it cannot be read.
func (a *App) itemSchema(r *registry.Resource) *registry.Schema {
	if r.Item == nil {
		return nil
	}
	s := a.answerSchema(r.Item.Operation)
	if s != nil && r.Item.Unwrap != "" {
		s = a.property(s, r.Item.Unwrap)
	}
	return s
}

func (a *App) answerSchema(operation string) *registry.Schema {
	op := a.Index.Operation(operation)
	if op == nil || op.Success() == nil || op.Success().Schema == "" {
		return nil
	}
	return a.Index.Schema(op.Success().Schema)
}

func (a *App) property(s *registry.Schema, name string) *registry.Schema {
	f := s.Field(name)
	if f == nil {
		return nil
	}
	return a.Index.Deref(&f.Schema)
}

// fields finds what --fields names, or returns fallback without it.
func (a *App) fields(r *registry.Resource, of register, p printing, clusters bool, fallback []field) ([]field, error) {
	if p.fields == nil {
		if clusters {
			return append([]field{clusterField}, fallback...), nil
		}
		return fallback, nil
	}
	var fields []field
	for _, name := range p.fields {
		f, err := a.findField(r, of, name, clusters)
		if err != nil {
			return nil, fmt.Errorf("--fields: %w", err)
		}
		fields = append(fields, f)
	}
	return fields, nil
}
