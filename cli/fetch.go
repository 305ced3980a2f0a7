package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

const (
	// pageSize is how many rows one request asks for, where the document allows it.
	pageSize = 500
	// maxRows bounds a list in memory.
	maxRows = 200_000
)

// found is what a list held.
type found struct {
	values []any
	total  int // of all rows on the server, when only the first ones were read; len(values) otherwise
}

// errRows is how many rows came when the server counts more.
type errRows int

func (n errRows) Error() string { return fmt.Sprintf("only %d rows came", int(n)) }

// fetch reads a whole list, page after page until the total is reached. With limit
// zero or more it stops as soon as that many rows are there. Filters travel to the
// server where the document declares the parameter; the caller applies them again,
// because an older server ignores them.
func (a *App) fetch(ctx context.Context, api *client.Client, addr registry.Address, filters []filterArg, limit int) (found, error) {
	r := addr.Resource
	op := a.Index.Operation(r.List.Operation)
	path, err := addr.URLPath(op)
	if err != nil {
		return found{}, clierr.New(clierr.Internal, "%v", err)
	}
	query := filterQuery(op, filters)
	page := pageOf(op)
	var all found
	seen := map[string]bool{}
	for offset := 0; ; {
		if page > 0 {
			query.Set("limit", strconv.Itoa(page))
			query.Set("offset", strconv.Itoa(offset))
		}
		answer, err := api.Do(ctx, client.Request{Method: http.MethodGet, Path: path, Query: query})
		if err != nil {
			return found{}, err
		}
		values, total, err := listRows(r.List, answer)
		if err != nil {
			return found{}, err
		}
		fresh := 0
		for _, v := range values {
			// A row that moves while pages are read must not appear twice; a server that
			// ignores the offset must not make this endless.
			if id := rowID(r, v); id != "" {
				if seen[id] {
					continue
				}
				seen[id] = true
			}
			all.values = append(all.values, v)
			fresh++
		}
		all.total = len(all.values)
		offset += len(values)
		switch {
		case len(all.values) > maxRows:
			return found{}, clierr.New(clierr.BadResponse, "the list has more than %d rows", maxRows).Hint("narrow it with --filter, or take the first ones with --limit")
		case limit >= 0 && len(all.values) >= limit && (total > limit || len(all.values) > limit):
			all.total = max(total, len(all.values))
			all.values = all.values[:limit]
			return all, nil
		case page == 0 || len(values) == 0 || fresh == 0 && r.List.ID != "":
			if total > offset {
				// Part of a list must not look like the whole of it.
				return found{}, clierr.New(clierr.BadResponse, "the server counts %d rows and answers only %d", total, len(all.values)).
					Because(errRows(len(all.values)))
			}
			return all, nil
		case total >= 0 && offset >= total, total < 0 && len(values) < page:
			return all, nil
		}
	}
}

// pageOf is the page size to ask for; zero when the operation declares no paging.
func pageOf(op *registry.Operation) int {
	limit, offset := op.QueryParam("limit"), op.QueryParam("offset")
	if limit == nil || offset == nil {
		return 0
	}
	if l := limit.Schema.Limits; l != nil && l.Max != nil {
		return min(pageSize, int(*l.Max))
	}
	return pageSize
}

func filterQuery(op *registry.Operation, filters []filterArg) url.Values {
	query := url.Values{}
	for _, f := range filters {
		// Several filters on one key are all applied here; the server gets the first of them.
		if f.Param != "" && op.QueryParam(f.Param) != nil && !query.Has(f.Param) {
			query.Set(f.Param, f.value)
		}
	}
	return query
}

// listRows takes the rows and their total out of an answer; total is -1 when unknown.
func listRows(l *registry.List, answer *client.Response) ([]any, int, error) {
	bad := func(why string) error {
		e := clierr.New(clierr.BadResponse, "the list has another shape than this release knows: %s", why)
		e.RequestID = answer.RequestID
		return e
	}
	body, err := output.Decode(answer.Body)
	if err != nil {
		return nil, 0, bad("the answer is empty or no JSON")
	}
	total := -1
	if l.Total != "" {
		if n, err := strconv.Atoi(fmt.Sprint(output.Lookup(body, l.Total))); err == nil {
			total = n
		}
	}
	if l.TotalHeader != "" {
		if n, err := strconv.Atoi(answer.Header.Get(l.TotalHeader)); err == nil {
			total = n
		}
	}
	rows := body
	if l.Rows != "" {
		object, ok := body.(map[string]any)
		if !ok {
			return nil, 0, bad("an object was expected")
		}
		rows = object[l.Rows]
	}
	switch rows := rows.(type) {
	case nil:
		return nil, total, nil
	case []any:
		return rows, total, nil
	case map[string]any:
		if l.Single {
			return []any{rows}, -1, nil
		}
	}
	return nil, 0, bad(fmt.Sprintf("there is no list at %q", l.Rows))
}

// rowID is what addresses a row; empty when rows of this list have no id.
func rowID(r *registry.Resource, value any) string {
	if s, ok := value.(string); ok && r.List.Scalar {
		return s
	}
	if r.List.ID == "" {
		return ""
	}
	return output.Plain(output.Lookup(value, r.List.ID))
}
