package e2b

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/podlog"
)

// Bounds of an answer. What is longer than a line may be is cut; what does not fit is left for the next request, or,
// backward, is what is older.
const (
	maxLogLines = 1000
	maxLogBytes = 8 << 20
	maxLogLine  = 256 << 10
	logLineCut  = " [cut: the line is longer than 256 KiB]"
)

// logLevel is that of every line: a container's output carries none.
const logLevel = "info"

// logLevels in rising order. A filter shows its level and those above it.
var logLevels = []string{"debug", "info", "warn", "error"}

type logEntryBody struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

type logLineBody struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

type logsV1Body struct {
	Logs       []logLineBody  `json:"logs"`
	LogEntries []logEntryBody `json:"logEntries"`
}

type logsV2Body struct {
	Logs []logEntryBody `json:"logs"`
}

// logQuery is the part of a request that both versions share.
type logQuery struct {
	From     time.Time
	Limit    int
	Backward bool
	Level    string
	Search   string
}

// logsV1 is the form that the CLI reads: each line is a JSON object in a string.
func (h *Handler) logsV1(ctx context.Context, c *call) (reply, error) {
	q, err := c.queryParams("start", "limit", "direction", "level", "search")
	if err != nil {
		return reply{}, err
	}
	entries, err := h.readLogs(ctx, c, q, "start")
	if err != nil {
		return reply{}, err
	}
	body := logsV1Body{Logs: []logLineBody{}, LogEntries: entries}
	for _, e := range entries {
		line, err := json.Marshal(map[string]string{"level": e.Level, "logger": e.Fields["logger"], "message": e.Message,
			"timestamp": e.Timestamp.Format(time.RFC3339Nano)})
		if err != nil {
			return reply{}, fmt.Errorf("encode log line: %w", err)
		}
		body.Logs = append(body.Logs, logLineBody{Timestamp: e.Timestamp, Line: string(line)})
	}
	return reply{Status: http.StatusOK, Body: body}, nil
}

func (h *Handler) logsV2(ctx context.Context, c *call) (reply, error) {
	q, err := c.queryParams("cursor", "limit", "direction", "level", "search")
	if err != nil {
		return reply{}, err
	}
	entries, err := h.readLogs(ctx, c, q, "cursor")
	if err != nil {
		return reply{}, err
	}
	return reply{Status: http.StatusOK, Body: logsV2Body{Logs: entries}}, nil
}

// readLogs reads the log of the sandbox that a request names. startName is the parameter with the time, in Unix
// milliseconds, from which on (forward) or up to which (backward) lines are wanted.
func (h *Handler) readLogs(ctx context.Context, c *call, q url.Values, startName string) ([]logEntryBody, error) {
	query, err := parseLogQuery(q, startName)
	if err != nil {
		return nil, err
	}
	sb, err := h.sandbox(ctx, c, access.VerbGet)
	if err != nil {
		return nil, err
	}
	if h.logs == nil {
		return nil, notImplemented("reading logs", "run commands through the SDK: it streams their output")
	}
	since := sb.ClaimedAt // a Pod serves one sandbox after another
	if !query.Backward && query.From.After(since) {
		since = query.From
	}
	var tail int64
	if query.Backward && query.From.IsZero() && query.Search == "" {
		tail = int64(query.Limit)
	}
	stream, err := h.logs(ctx, podlog.Query{Namespace: sb.Owner.Namespace, Pod: sb.Pod, Since: since, Lines: tail})
	if err != nil {
		return nil, &apiError{Status: http.StatusBadGateway, Message: "the sandbox's log could not be read; try again", Err: err}
	}
	defer func() { _ = stream.Close() }()
	return scanLogs(stream, since, query)
}

func parseLogQuery(q url.Values, startName string) (logQuery, error) {
	var out logQuery
	start, err := intParam(q, startName, 0, 0, 1<<53)
	if err != nil {
		return out, err
	}
	if start > 0 {
		out.From = time.UnixMilli(start)
	}
	limit, err := intParam(q, "limit", maxLogLines, 0, maxLogLines)
	if err != nil {
		return out, err
	}
	direction, err := enumParam(q, "direction", "forward", "backward")
	if err != nil {
		return out, err
	}
	level, err := enumParam(q, "level", logLevels...)
	if err != nil {
		return out, err
	}
	out.Limit, out.Backward, out.Level, out.Search = int(limit), direction == "backward", level, q.Get("search")
	return out, nil
}

// scanLogs keeps the first lines that match or, backward, the last, newest first. A kubelet counts since in whole
// seconds, and the lines just before it may be another sandbox's.
func scanLogs(stream io.Reader, since time.Time, q logQuery) ([]logEntryBody, error) {
	out := []logEntryBody{}
	if q.Limit == 0 || slices.Index(logLevels, q.Level) > slices.Index(logLevels, logLevel) {
		return out, nil
	}
	size := 0
	lines := bufio.NewReaderSize(stream, 64<<10)
	for {
		line, err := readLogLine(lines)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &apiError{Status: http.StatusBadGateway, Message: "the sandbox's log could not be read to its end; try again", Err: err}
		}
		entry, ok := parseLogLine(line)
		if !ok || !strings.Contains(entry.Message, q.Search) {
			continue
		}
		if entry.Timestamp.Before(since) || q.Backward && !q.From.IsZero() && !entry.Timestamp.Before(q.From) {
			continue
		}
		out = append(out, entry)
		size += len(entry.Message)
		if !q.Backward && (len(out) == q.Limit || size >= maxLogBytes) {
			return out, nil
		}
		for len(out) > q.Limit || size > maxLogBytes && len(out) > 1 {
			size -= len(out[0].Message)
			out[0] = logEntryBody{}
			out = out[1:]
		}
	}
	if q.Backward {
		slices.Reverse(out)
	}
	return out, nil
}

// readLogLine reads one line without its end, and cuts it where it is too long.
func readLogLine(r *bufio.Reader) (string, error) {
	var line []byte
	cut := false
	for {
		part, err := r.ReadSlice('\n')
		room := maxLogLine - len(line)
		cut = cut || len(part) > room
		line = append(line, part[:min(len(part), room)]...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0: // the last line may lack its end
		case err != nil:
			return "", err
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		if cut {
			text += logLineCut
		}
		return text, nil
	}
}

func parseLogLine(line string) (logEntryBody, bool) {
	stamp, text, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return logEntryBody{}, false
	}
	return logEntryBody{Timestamp: at.UTC(), Level: logLevel, Message: text, Fields: map[string]string{"logger": "container"}}, true
}
