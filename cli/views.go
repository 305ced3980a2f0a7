package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

// readView reads the view that ends the address.
func (a *App) readView(cmd *cobra.Command, addr registry.Address, p printing) error {
	query, follow, err := a.viewQuery(cmd, addr)
	if err != nil {
		return err
	}
	s, err := a.connect(cmd)
	if addr.View.Operation == "" {
		return a.consoleOnly(cmd.Context(), s, err, addr)
	}
	if err != nil {
		return err
	}
	defer s.close()
	api, err := s.api(cmd.Context())
	if err != nil {
		return err
	}
	if follow {
		if err := s.require(cmd.Context(), api, featureLogFollow, "--follow"); err != nil {
			return err
		}
		ctx, cancel := s.streamContext(cmd)
		defer cancel()
		return a.missing(a.followLogs(ctx, api, addr, query, p), addr)
	}
	if addr.View.Renderer == "docs" {
		return a.printDocs(cmd.Context(), api, addr, p)
	}
	return a.printLogs(cmd.Context(), api, addr, query, p)
}

// consoleOnly says that the API does not serve the view, with the page that shows it.
func (a *App) consoleOnly(ctx context.Context, s *session, connectErr error, addr registry.Address) error {
	page := ""
	if connectErr == nil {
		defer s.close()
		// An answer, whatever it is, tells whether there is a console, and which cluster is meant.
		if _, err := s.api(ctx); err == nil {
			page = s.page(addr)
		}
	}
	if page != "" {
		return clierr.New(clierr.Unsupported, "the API does not serve %s; the console shows them", addr.View.Name).Hint(page)
	}
	item := addr
	item.View = nil
	return clierr.New(clierr.Unsupported, "the API does not serve %s, and no console that shows them is known here", addr.View.Name).
		Hint("abx " + quoteWords(item.Words()))
}

// viewQuery turns the flags of a view into the query of its operation.
func (a *App) viewQuery(cmd *cobra.Command, addr registry.Address) (url.Values, bool, error) {
	query := url.Values{}
	follow := false
	op := a.Index.Operation(addr.View.Operation)
	for _, o := range addr.View.Options {
		f := cmd.Flags().Lookup(o.Flag)
		if f == nil || !f.Changed || op == nil {
			continue
		}
		value := f.Value.String()
		if o.Flag == "follow" {
			follow = value == "true"
		}
		if o.Flag == "tail" && value == "0" {
			return nil, false, clierr.New(clierr.InvalidValue, "--tail 0 would show nothing").Hint("leave it out, or ask for one line or more")
		}
		if err := checkParam(op, o, value); err != nil {
			return nil, false, err
		}
		query.Set(o.Param, value)
	}
	return query, follow, nil
}

// checkParam checks a flag against the schema of the parameter that it becomes.
func checkParam(op *registry.Operation, o registry.Option, value string) error {
	param := op.QueryParam(o.Param)
	if param == nil {
		return nil
	}
	if enum := param.Schema.Enum; len(enum) > 0 && !slices.Contains(enum, value) {
		return clierr.New(clierr.InvalidValue, "--%s cannot be %q", o.Flag, value).Choices(enum, registry.Suggest(value, enum))
	}
	if l := param.Schema.Limits; l != nil && l.Max != nil {
		var n float64
		if _, err := fmt.Sscan(value, &n); err == nil && n > *l.Max {
			return clierr.New(clierr.InvalidValue, "--%s is at most %v", o.Flag, *l.Max)
		}
	}
	return nil
}

// printDocs prints a documentation page as it is.
func (a *App) printDocs(ctx context.Context, api *client.Client, addr registry.Address, p printing) error {
	item := addr
	item.View = nil
	value, _, err := a.getItem(ctx, api, item)
	if err != nil {
		return a.missing(err, item)
	}
	if p.query != nil || p.format == output.JSON || p.format == output.NDJSON || p.format == output.YAML {
		return a.document(ctx, p, value)
	}
	docs := strings.TrimSpace(output.Plain(output.Lookup(value, addr.View.Field)))
	if docs == "" {
		a.note("the %s has no documentation", addr.Resource.Kind)
		return nil
	}
	return a.print(text.Block(docs) + "\n")
}

// logEntry is one line that a container wrote.
type logEntry struct {
	Timestamp string `json:"timestamp"`
	Container string `json:"container"`
	Log       string `json:"log"`
}

func (e logEntry) line() string {
	var b strings.Builder
	if e.Timestamp != "" {
		b.WriteString(text.Line(e.Timestamp) + "  ")
	}
	if e.Container != "" {
		b.WriteString("[" + text.Line(e.Container) + "] ")
	}
	return b.String() + text.Line(strings.TrimRight(e.Log, "\r\n")) + "\n"
}

var logHeading = []string{"timestamp", "container", "log"}

func (e logEntry) cells() []string { return []string{e.Timestamp, e.Container, e.Log} }

// printLogs prints what the containers of a sandbox wrote so far.
func (a *App) printLogs(ctx context.Context, api *client.Client, addr registry.Address, query url.Values, p printing) error {
	op := a.Index.Operation(addr.View.Operation)
	path, err := addr.URLPath(op)
	if err != nil {
		return clierr.New(clierr.Internal, "%v", err)
	}
	answer, err := api.Do(ctx, client.Request{Method: http.MethodGet, Path: path, Query: query})
	if err != nil {
		item := addr
		item.View = nil
		return a.missing(err, item)
	}
	value, err := output.Decode(answer.Body)
	if err != nil {
		return clierr.New(clierr.BadResponse, "the logs cannot be read: %v", err)
	}
	var snapshot struct {
		Entries []logEntry `json:"entries"`
	}
	if err := decodeInto(answer.Body, &snapshot); err != nil {
		return err
	}
	switch {
	case p.query == nil && p.format == output.CSV:
		var rows [][]string
		for _, e := range snapshot.Entries {
			rows = append(rows, e.cells())
		}
		return output.WriteCSV(a.Out, logHeading, rows)
	case p.query == nil && p.format == output.NDJSON:
		entries, _ := output.Lookup(value, "entries").([]any)
		for _, e := range entries {
			if err := output.WriteJSON(a.Out, e); err != nil {
				return err
			}
		}
		return nil
	case p.machine():
		return a.document(ctx, p, value)
	}
	return a.printLogPage(p, addr, value, snapshot.Entries)
}

func (a *App) printLogPage(p printing, addr registry.Address, value any, entries []logEntry) error {
	if err := a.print(p.style.Heading(title("logs", addr.ID())) + "\n\n"); err != nil {
		return err
	}
	var lines []output.Pair
	for _, f := range []struct{ name, path string }{
		{"containers", "containers"}, {"source", "source"}, {"namespace", "namespace"}, {"pod", "podName"},
		{"capturedAt", "capturedAt"}, {"totalBytes", "totalBytes"}, {"truncated", "truncated"}, {"scope", "scope"},
	} {
		if v := output.Lookup(value, f.path); !output.Empty(v) {
			lines = append(lines, output.Pair{Name: f.name, Value: output.Cell(v)})
		}
	}
	var b strings.Builder
	if len(lines) > 0 {
		if err := output.WritePairs(a.Out, lines, p.style); err != nil {
			return err
		}
		b.WriteString("\n")
	}
	for _, e := range entries {
		b.WriteString(e.line())
	}
	if len(entries) == 0 {
		b.WriteString("nothing was written yet\n")
	}
	return a.print(b.String())
}

// followLogs prints lines as they are written, until the sandbox ends.
func (a *App) followLogs(ctx context.Context, api *client.Client, addr registry.Address, query url.Values, p printing) error {
	path, err := addr.URLPath(a.Index.Operation(addr.View.Operation))
	if err != nil {
		return clierr.New(clierr.Internal, "%v", err)
	}
	asCSV := p.format == output.CSV && p.query == nil
	if asCSV {
		if err := output.WriteCSVRow(a.Out, logHeading); err != nil {
			return err
		}
	}
	return a.stream(ctx, api, path, query, func(data []byte) error {
		var e logEntry
		if err := json.Unmarshal(data, &e); err != nil {
			return clierr.New(clierr.BadResponse, "a log line cannot be read: %v", err)
		}
		if asCSV {
			return output.WriteCSVRow(a.Out, e.cells())
		}
		if p.machine() {
			value, err := output.Decode(data)
			if err != nil {
				return clierr.New(clierr.BadResponse, "a log line cannot be read: %v", err)
			}
			return a.event(ctx, p, value)
		}
		return a.print(e.line())
	})
}
