package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// row is one line of a list.
type row struct {
	value   any    // the object as the API sent it
	key     string // of a row that was expanded from it; empty when the maps were empty
	cluster string // where it is from, with --all-clusters
	object  int    // which of the list's objects it belongs to
}

// field is something that can be shown of a row: a column, a detail line or a path.
type field struct {
	id  string
	get func(row) any
}

var clusterField = field{"cluster", func(r row) any { return r.cluster }}

// columnField is the field of a column.
func columnField(r *registry.Resource, c registry.Column) field {
	if c.Derived != "" {
		return field{c.ID, func(w row) any { return derive(c.Derived, w) }}
	}
	scalar := r.List != nil && r.List.Scalar
	return field{c.ID, func(w row) any {
		if scalar {
			if _, isText := w.value.(string); isText {
				return w.value
			}
		}
		if v := output.Lookup(w.value, c.Path); !output.Empty(v) || len(c.Else) == 0 {
			return v
		}
		var parts []string
		for _, path := range c.Else {
			if v := output.Plain(output.Lookup(w.value, path)); v != "" {
				parts = append(parts, v)
			}
		}
		return strings.Join(parts, "/")
	}}
}

// columnFields are the columns of a table.
func columnFields(r *registry.Resource, wide bool) []field {
	var fields []field
	for _, c := range r.Columns {
		if wide || !c.Wide {
			fields = append(fields, columnField(r, c))
		}
	}
	return fields
}

// expand returns the rows of an object: itself, or with List.Expand one for each key
// of the maps below that property.
func expand(l *registry.List, value any, cluster string) []row {
	if l == nil || l.Expand == "" {
		return []row{{value: value, cluster: cluster}}
	}
	keys := map[string]bool{}
	if groups, ok := output.Lookup(value, l.Expand).(map[string]any); ok {
		for _, group := range groups {
			if m, ok := group.(map[string]any); ok {
				for k := range m {
					keys[k] = true
				}
			}
		}
	}
	if len(keys) == 0 {
		return []row{{value: value, cluster: cluster}}
	}
	var rows []row
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		rows = append(rows, row{value: value, key: k, cluster: cluster})
	}
	return rows
}

// What the derived columns of a quota say.
const (
	unlimited      = "unlimited"
	noteNoCap      = "no cap here; stock decides"
	noteNoneToHave = "nothing allocated; requests are refused"
	skipCheckPath  = `metadata["quota.scitix.ai/skip-check"]`
)

// derive computes a derived column of an expanded quota (registry.Derivations). The
// ceiling has three readings: unlimited when checking is switched off, or when
// nobody says anything about it; the total when there is one; otherwise unknown.
func derive(name string, r row) any {
	amount := func(kind string) any {
		if r.key == "" {
			return nil
		}
		m, _ := output.Lookup(r.value, "resources."+kind).(map[string]any)
		return m[r.key]
	}
	skip := output.Lookup(r.value, skipCheckPath)
	total := amount("total")
	ceiling := total
	switch {
	case r.key == "":
		ceiling = nil
	case output.Plain(skip) == "true", total == nil && skip == nil:
		ceiling = unlimited
	}
	switch name {
	case "quota-instance-type":
		return r.key
	case "quota-used":
		return amount("used")
	case "quota-ceiling":
		return ceiling
	case "quota-free":
		return free(ceiling, amount("free"), amount("used"), amount("reserved"))
	case "quota-note":
		switch {
		case ceiling == unlimited:
			return noteNoCap
		case output.Plain(ceiling) == "0":
			return noteNoneToHave
		}
	}
	return nil
}

// free is what a quota has left: as the server says, or the ceiling less what is used and reserved.
func free(ceiling, given, used, reserved any) any {
	if ceiling == nil || ceiling == unlimited {
		return nil
	}
	if given != nil {
		return given
	}
	left, ok := rational(ceiling)
	if !ok {
		return nil
	}
	for _, taken := range []any{used, reserved} {
		if n, ok := rational(taken); ok {
			left.Sub(left, n)
		}
	}
	if left.Sign() < 0 {
		left.SetInt64(0)
	}
	if left.IsInt() {
		return json.Number(left.Num().String())
	}
	return json.Number(strings.TrimRight(left.FloatString(6), "0"))
}

func rational(v any) (*big.Rat, bool) {
	if v == nil {
		return nil, false
	}
	s := fmt.Sprint(v)
	if len(s) > 40 || strings.ContainsAny(s, "eE/") { // an exponent could ask for gigabytes of digits
		return nil, false
	}
	return new(big.Rat).SetString(s)
}
