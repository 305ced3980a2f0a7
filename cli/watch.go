package cli

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

// watchList prints the rows of a list and then every change to them until interrupted. When the stream ends it connects
// again, and prints what has become different in between.
func (a *App) watchList(cmd *cobra.Command, s *session, addr registry.Address, p printing, l listing, fields []field) error {
	ctx, cancel := s.streamContext(cmd)
	defer cancel()
	api, err := s.listAPI(ctx, addr.Resource)
	if err != nil {
		return err
	}
	if err := s.require(ctx, api, featureWatch, "--watch"); err != nil {
		return err
	}
	op := a.Index.Operation(addr.Resource.List.Operation)
	path, err := addr.URLPath(op)
	if err != nil {
		return clierr.New(clierr.Internal, "%v", err)
	}
	query := filterQuery(op, l.filters)
	query.Set("watch", "true")
	w := &watcher{app: a, resource: addr.Resource, p: p, filters: l.filters,
		fields: append([]field{{"change", nil}}, fields...), printed: map[string]any{}, shown: map[string]string{}}
	noted := false
	for failures := 0; ; failures++ {
		w.connected()
		err := a.stream(ctx, api, path, query, func(data []byte) error { return w.event(ctx, data) })
		if ctx.Err() != nil {
			if w.began {
				_ = w.begin() // what has come so far is still to be printed
			}
			return ended(ctx)
		}
		if err != nil && (!w.began || !passing(err)) {
			return err
		}
		if err := w.begin(); err != nil { // the stream may end before it has marked its beginning
			return err
		}
		if w.inStep {
			failures, noted = 0, false
		}
		if !noted && !a.json {
			noted = true
			why := "the server ended the watch"
			if err != nil {
				why = err.Error()
			}
			a.note("%s; connecting again", why)
		}
		if a.Pause(ctx, reconnectPause(failures)) != nil {
			return ended(ctx)
		}
	}
}

// passing reports whether a watch that failed may work later: the server could not be reached, or is not well. An
// answer that refuses it stays what it is.
func passing(err error) bool {
	e := clierr.From(err)
	switch e.Status {
	case 0:
		return e.Code == clierr.Unreachable || e.Code == clierr.Timeout
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return e.Status >= http.StatusInternalServerError
}

// reconnectPause grows with every connection that came to nothing. The jitter keeps the clients of a restarted server
// apart.
func reconnectPause(failures int) time.Duration {
	base := min(200*time.Millisecond<<min(failures, 10), 20*time.Second)
	return base/2 + rand.N(base)
}

// stream reads server-sent events until the server or the person ends it.
func (a *App) stream(ctx context.Context, api *client.Client, path string, query url.Values, each func([]byte) error) error {
	answer, err := api.Stream(ctx, client.Request{Method: http.MethodGet, Path: path, Query: query}, "text/event-stream")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type")); err != nil || kind != "text/event-stream" {
		return clierr.New(clierr.BadResponse, "the server answered with %q where a stream of events was expected", answer.Header.Get("Content-Type"))
	}
	for data, err := range client.Events(answer.Body) {
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			err = each(data)
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return nil
}

// watcher prints the events of one watched list.
type watcher struct {
	app      *App
	resource *registry.Resource
	p        printing
	filters  []filterArg
	fields   []field
	widths   []int      // of the table, once its beginning was printed
	first    [][]string // rows that existed when the watch began, not printed yet

	shown   map[string]string // the line of each printed row, by identity
	printed map[string]any    // the rows that were printed and are there, by identity
	unseen  map[string]bool   // those that the present stream has not shown yet
	began   bool              // an event has come
	inStep  bool              // the present stream has marked its beginning: what it says from then on is news
}

// connected begins a stream, which shows all rows first.
func (w *watcher) connected() {
	w.inStep = false
	w.unseen = map[string]bool{}
	for id := range w.printed {
		w.unseen[id] = true
	}
}

type watchEvent struct {
	Type   string          `json:"type"`
	Kind   string          `json:"kind"`
	Object json.RawMessage `json:"object"`
}

func (w *watcher) event(ctx context.Context, data []byte) error {
	var e watchEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return clierr.New(clierr.BadResponse, "an event of the watch cannot be read: %v", err)
	}
	w.began = true
	if e.Type == "BOOKMARK" {
		if err := w.catchUp(ctx); err != nil {
			return err
		}
		return w.begin()
	}
	if e.Kind != "" && e.Kind != w.resource.Kind {
		return nil // one list may hold several kinds
	}
	value, err := output.Decode(e.Object)
	if err != nil {
		return clierr.New(clierr.BadResponse, "an event of the watch cannot be read: %v", err)
	}
	r := row{value: value}
	if slices.ContainsFunc(w.filters, func(f filterArg) bool { return !f.matches(r) }) {
		return nil
	}
	id := w.identity(value, e.Object)
	was, known := w.printed[id]
	delete(w.unseen, id)
	if !w.inStep && known && e.Type == "ADDED" {
		if reflect.DeepEqual(was, value) {
			return nil
		}
		e.Type = "MODIFIED"
	}
	if w.printed[id] = value; e.Type == "DELETED" {
		delete(w.printed, id)
	}
	if e.Type == "MODIFIED" && w.looksTheSame(id, r) {
		return nil
	}
	w.remember(id, r)
	return w.change(ctx, e.Type, r)
}

// looksTheSame reports whether a change is in none of the columns that are printed. A program gets every change.
func (w *watcher) looksTheSame(id string, r row) bool {
	was, known := w.shown[id]
	return known && was == w.cells(r)
}

func (w *watcher) remember(id string, r row) {
	if w.p.query == nil && (w.p.format == output.Table || w.p.format == output.CSV) {
		w.shown[id] = w.cells(r)
	}
}

func (w *watcher) cells(r row) string {
	var b strings.Builder
	for _, f := range w.fields[1:] {
		b.WriteString(output.Plain(f.get(r)) + "\x00")
	}
	return b.String()
}

// catchUp ends the rows that a stream shows first: the printed ones that were not among them are gone.
func (w *watcher) catchUp(ctx context.Context) error {
	w.inStep = true
	for _, id := range slices.Sorted(maps.Keys(w.unseen)) {
		gone := row{value: w.printed[id]}
		delete(w.printed, id)
		if err := w.change(ctx, "DELETED", gone); err != nil {
			return err
		}
	}
	w.unseen = nil
	return nil
}

// identity tells the rows of a list apart. Rows without an id are what they hold.
func (w *watcher) identity(value any, raw []byte) string {
	id := rowID(w.resource, value)
	if id == "" {
		return string(raw)
	}
	return output.Plain(output.Lookup(value, "namespace")) + "/" + id
}

// change prints one change.
func (w *watcher) change(ctx context.Context, kind string, r row) error {
	if w.p.query != nil || w.p.format == output.JSON || w.p.format == output.NDJSON || w.p.format == output.YAML {
		value := r.value
		if w.p.fields != nil {
			value = picked(w.fields[1:], r)
		}
		return w.app.event(ctx, w.p, map[string]any{"type": kind, "object": value})
	}
	return w.line(kind, r)
}

func (w *watcher) line(change string, r row) error {
	switch w.p.format {
	case output.Name:
		return w.app.line(change + " " + rowID(w.resource, r.value))
	case output.CSV:
		cells := []string{change}
		for _, f := range w.fields[1:] {
			cells = append(cells, output.Plain(f.get(r)))
		}
		if w.widths == nil {
			w.widths = make([]int, len(w.fields))
			return output.WriteCSV(w.app.Out, headings(w.fields), [][]string{cells})
		}
		return output.WriteCSVRow(w.app.Out, cells)
	}
	cells := []string{change}
	for _, f := range w.fields[1:] {
		cells = append(cells, output.Cell(f.get(r)))
	}
	if w.widths == nil {
		w.first = append(w.first, cells)
		return nil
	}
	return w.print(cells)
}

// print prints one line of the table, in the widths that its beginning has set.
func (w *watcher) print(cells []string) error {
	var b strings.Builder
	for i, c := range cells {
		b.WriteString(text.Pad(c, w.widths[i]+2))
	}
	return w.app.print(strings.TrimRight(b.String(), " ") + "\n")
}

// begin prints the rows that existed when the watch began; later rows keep their widths.
func (w *watcher) begin() error {
	if w.widths != nil || w.p.machine() {
		return nil
	}
	w.widths = make([]int, len(w.fields))
	w.widths[0] = len("MODIFIED")
	lines := append([][]string{headings(w.fields)}, w.first...)
	w.first = nil
	for _, line := range lines {
		for i, c := range line {
			w.widths[i] = max(w.widths[i], text.Width(c))
		}
	}
	for i, line := range lines {
		if i == 0 {
			line = slices.Clone(line)
			for j := range line {
				line[j] = w.p.style.Heading(line[j])
			}
		}
		if err := w.print(line); err != nil {
			return err
		}
	}
	return nil
}

// event prints one event of a stream: documents in YAML, lines in every other format.
func (a *App) event(ctx context.Context, p printing, v any) error {
	if p.query == nil && p.format == output.YAML {
		if err := a.print("---\n"); err != nil {
			return err
		}
	}
	return a.document(ctx, p, v)
}
