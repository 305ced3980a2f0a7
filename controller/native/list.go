package native

import (
	"context"
	"fmt"
	"strings"
)

// lister serves one collection: filtered, paged and watched the same way everywhere.
type lister[T any] struct {
	// kind is the kind of a row, for watch events.
	kind string
	// rows returns every row that the caller may see, in the collection's order.
	rows func(ctx context.Context) ([]T, error)
	// key identifies a row among the others.
	key func(T) string
	// filters holds the value that each filter of the operation looks at.
	filters map[string]func(T) string
	// wrap puts a page into the operation's envelope.
	wrap func(p page[T]) any
	// changes tells when rows may have changed; nil looks again every second.
	changes changeSource
	// total goes into a header where the envelope has no place for it.
	totalHeader bool
	// defaultLimit is what the document says; 0 is no limit.
	defaultLimit int
}

// page is one page of rows.
type page[T any] struct {
	Items  []T `json:"items"`
	Total  int `json:"total"`
	Limit  int `json:"limit"`
	Offset int `json:"offset"`
}

// notFilters are the query parameters of lists that are not filters.
var notFilters = map[string]bool{"limit": true, "offset": true, "watch": true}

func (l lister[T]) serve(c *call) (*response, error) {
	match, err := l.matcher(c)
	if err != nil {
		return nil, err
	}
	filtered := func(ctx context.Context) ([]T, error) {
		all, err := l.rows(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]T, 0, len(all))
		for _, row := range all {
			if match(row) {
				out = append(out, row)
			}
		}
		return out, nil
	}
	if c.flag("watch") {
		for _, name := range []string{"limit", "offset"} {
			if c.query.Has(name) {
				return nil, badParameter("watch streams every row: leave "+name+" out", "watch does not go with %s", name)
			}
		}
		return l.watch(c, filtered)
	}
	rows, err := filtered(c.ctx)
	if err != nil {
		return nil, err
	}
	p := l.page(c, rows)
	resp := ok(any(p))
	if l.wrap != nil {
		resp.body = l.wrap(p)
	}
	if l.totalHeader {
		resp.header = map[string][]string{"X-Total-Count": {fmt.Sprint(p.Total)}}
	}
	return resp, nil
}

func (l lister[T]) page(c *call, rows []T) page[T] {
	p := page[T]{Items: rows, Total: len(rows), Limit: l.defaultLimit}
	if n, sent := c.number("limit"); sent {
		p.Limit = n
	}
	p.Offset, _ = c.number("offset")
	p.Items = p.Items[min(p.Offset, len(p.Items)):]
	if p.Limit > 0 {
		p.Items = p.Items[:min(p.Limit, len(p.Items))]
	}
	return p
}

// matcher builds the filter of a request: closed sets match exactly, everything else contains, ignoring case.
func (l lister[T]) matcher(c *call) (func(T) bool, error) {
	var tests []func(T) bool
	for name, schema := range c.op.query {
		if notFilters[name] {
			continue
		}
		value := l.filters[name]
		if value == nil {
			return nil, fmt.Errorf("%s: the filter %s is declared and not served", c.op.id, name)
		}
		want := c.query.Get(name)
		if !c.query.Has(name) || want == "" {
			continue
		}
		if len(enumOf(schema)) > 0 {
			tests = append(tests, func(row T) bool { return value(row) == want })
			continue
		}
		want = strings.ToLower(want)
		tests = append(tests, func(row T) bool { return strings.Contains(strings.ToLower(value(row)), want) })
	}
	return func(row T) bool {
		for _, test := range tests {
			if !test(row) {
				return false
			}
		}
		return true
	}, nil
}
