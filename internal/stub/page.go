package stub

import (
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// page makes the example of a list as long as SetRows says and applies the filters,
// the limit and the offset of the request, with the defaults of the document.
func (s *Server) page(value any, c *call, query url.Values) any {
	if c.op.Parameters.GetByInAndName("query", "limit") == nil {
		return value
	}
	envelope, isObject := value.(map[string]any)
	rows, isArray := value.([]any)
	key := ""
	if isObject {
		for k, v := range envelope {
			if list, ok := v.([]any); ok && (key == "" || k == "items" || k == "pending") {
				key, rows = k, list
			}
		}
	}
	if !isArray && key == "" {
		return value
	}
	n, set := 0, false
	s.locked(func() { n, set = s.rows[c.op.OperationID] })
	if set {
		rows = repeat(rows, n)
	}
	total := len(rows)
	if !s.legacy {
		rows = filter(rows, c.op, query)
		total = len(rows)
		rows = window(rows, c.op, query)
	} else if limit := defaultLimit(c.op); limit > 0 || query.Has("limit") {
		rows = window(rows, c.op, query) // the base API pages some lists as well
	}
	if isArray {
		return rows
	}
	envelope[key] = rows
	if _, counted := envelope["total"]; counted && key != "grants" {
		envelope["total"] = total
	}
	return envelope
}

// repeat makes a list n rows long out of its first row, with ids of their own.
func repeat(rows []any, n int) []any {
	list := []any{}
	for i := range n {
		switch first := rows[0].(type) {
		case map[string]any:
			row := maps.Clone(first)
			for _, id := range []string{"sandboxId", "name", "keyId", "id", "claimName"} {
				if v, ok := row[id].(string); ok && i > 0 {
					row[id] = fmt.Sprintf("%s%04d", v[:min(len(v), 12)], i)
					break
				}
			}
			list = append(list, row)
		default:
			list = append(list, fmt.Sprintf("%v%04d", first, i))
		}
	}
	return list
}

// filter keeps rows whose field, named as the parameter, contains the value.
func filter(rows []any, op *openapi3.Operation, query url.Values) []any {
	kept := []any{}
	for _, r := range rows {
		row, ok := r.(map[string]any)
		matches := true
		for _, ref := range op.Parameters {
			name := ref.Value.Name
			field, known := row[name]
			if ref.Value.In == "query" && query.Has(name) && ok && known &&
				!strings.Contains(strings.ToLower(fmt.Sprint(field)), strings.ToLower(query.Get(name))) {
				matches = false
			}
		}
		if matches {
			kept = append(kept, r)
		}
	}
	return kept
}

func window(rows []any, op *openapi3.Operation, query url.Values) []any {
	offset, _ := strconv.Atoi(query.Get("offset"))
	rows = rows[min(offset, len(rows)):]
	limit := defaultLimit(op)
	if n, err := strconv.Atoi(query.Get("limit")); err == nil {
		limit = n
	}
	if limit > 0 && len(rows) > limit {
		rows = rows[:limit]
	}
	return rows
}

func defaultLimit(op *openapi3.Operation) int {
	p := op.Parameters.GetByInAndName("query", "limit")
	if p == nil || p.Schema == nil || p.Schema.Value.Default == nil {
		return 0
	}
	n, _ := p.Schema.Value.Default.(float64)
	return int(n)
}
