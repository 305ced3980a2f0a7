// Package stub is a platform made of the OpenAPI document, for tests of the command
// line: it answers with the document's examples and refuses every request that the
// document does not allow, so that the two cannot disagree. Only tests import it.
package stub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"navix.sh/agentbox/openapi"
)

// Key is the credential that the stub takes.
const Key = "agbx_00000000000000000000000000000000"

// load parses the document once for all servers of a test binary.
var load = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Native)
	if err != nil {
		return nil, err
	}
	return doc, nil
})

// Answer replaces the document's example for one call.
type Answer struct {
	Status int
	Body   string            // JSON; empty: the document's example for the status
	Header map[string]string // in addition to the usual ones
	Hang   bool              // send the answer and keep the stream open, or never answer when Status is 0
}

// Server is a running stub. Its methods may be called while it serves.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	doc      *openapi3.T
	clusters []string
	legacy   bool
	rows     map[string]int      // operation -> number of rows that a list has
	answers  map[string][]Answer // operation -> answers to the next calls, in order
	log      []string
	asked    chan struct{} // closed and replaced when a request comes
	invalid  []string
	done     chan struct{}
}

// New starts a stub with one cluster, c-east. Close ends it.
func New() (*Server, error) {
	doc, err := load()
	if err != nil {
		return nil, err
	}
	s := &Server{doc: doc, clusters: []string{"c-east"}, rows: map[string]int{}, answers: map[string][]Answer{}, done: make(chan struct{}), asked: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	return s, nil
}

// Close ends the server and whatever hangs on it.
func (s *Server) Close() {
	close(s.done)
	s.Server.Close()
}

// SetClusters sets the ids of the clusters behind the console.
func (s *Server) SetClusters(ids ...string) { s.locked(func() { s.clusters = ids }) }

// SetLegacy makes the stub a deployment of the base API: no /version, no paging, filters, dry run, ETag or watch.
func (s *Server) SetLegacy() { s.locked(func() { s.legacy = true }) }

// SetRows makes the list of an operation n rows long.
func (s *Server) SetRows(operation string, n int) { s.locked(func() { s.rows[operation] = n }) }

// Next queues an answer for the next call of an operation.
func (s *Server) Next(operation string, a Answer) {
	s.locked(func() { s.answers[operation] = append(s.answers[operation], a) })
}

// Log returns the requests since the last call, as "METHOD target", and forgets them.
func (s *Server) Log() []string {
	var log []string
	s.locked(func() { log, s.log = s.log, nil })
	return log
}

// Await waits until a request whose log line contains part has come since the last Log.
func (s *Server) Await(ctx context.Context, part string) error {
	for {
		var asked chan struct{}
		found := false
		s.locked(func() {
			asked = s.asked
			found = slices.ContainsFunc(s.log, func(line string) bool { return strings.Contains(line, part) })
		})
		if found {
			return nil
		}
		select {
		case <-asked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Invalid returns what was wrong with requests that the document does not allow.
func (s *Server) Invalid() []string {
	var list []string
	s.locked(func() { list = slices.Clone(s.invalid) })
	return list
}

func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// call is a request that found its operation.
type call struct {
	op     *openapi3.Operation
	item   *openapi3.PathItem
	path   string // template
	params map[string]string
	body   []byte
}

// ServeHTTP answers from the document.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.locked(func() {
		line := r.Method + " " + r.URL.RequestURI()
		if m := r.Header.Get("If-Match"); m != "" {
			line += " If-Match=" + m
		}
		if len(body) > 0 {
			line += " " + string(body)
		}
		s.log = append(s.log, line)
		close(s.asked)
		s.asked = make(chan struct{})
	})
	w.Header().Set("X-Request-Id", "req-stub")
	path, bearer, found := s.split(r.URL.EscapedPath())
	if !found {
		s.refuse(w, http.StatusNotFound, "no such route")
		return
	}
	c := s.find(r.Method, path)
	if c == nil || s.legacy && path == "/version" {
		s.refuse(w, http.StatusNotFound, "no such route")
		return
	}
	c.body = body
	if path != "/version" && credential(r, bearer) != Key {
		s.example(w, c, http.StatusUnauthorized)
		return
	}
	if problem := s.validate(r, c); problem != "" {
		s.locked(func() { s.invalid = append(s.invalid, r.Method+" "+r.URL.RequestURI()+": "+problem) })
		s.refuse(w, http.StatusBadRequest, problem)
		return
	}
	s.answer(w, r, c)
}

// split takes the address of the API off a path and says which header carries the key there.
func (s *Server) split(path string) (rest string, bearer, ok bool) {
	if rest, ok = strings.CutPrefix(path, "/v1"); ok {
		return rest, false, true
	}
	rest, ok = strings.CutPrefix(path, "/api/clusters")
	if !ok {
		return "", false, false
	}
	if rest == "" {
		return "/clusters", true, true
	}
	cluster, rest, ok := strings.Cut(strings.TrimPrefix(rest, "/"), "/v1")
	id, err := url.PathUnescape(cluster)
	return rest, true, ok && err == nil && slices.Contains(s.clusters, id)
}

func credential(r *http.Request, bearer bool) string {
	if bearer {
		return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	return r.Header.Get("AGENTBOX-API-KEY")
}

// find matches a path with the templates of the document; one without placeholders wins.
func (s *Server) find(method, path string) *call {
	segments := strings.Split(path, "/")
	var best *call
	for template, item := range s.doc.Paths.Map() {
		op := item.GetOperation(method)
		params, ok := match(strings.Split(template, "/"), segments)
		if op == nil || !ok || best != nil && len(params) > len(best.params) {
			continue
		}
		best = &call{op: op, item: item, path: template, params: params}
	}
	return best
}

func match(template, segments []string) (map[string]string, bool) {
	if len(template) != len(segments) {
		return nil, false
	}
	params := map[string]string{}
	for i, t := range template {
		value, err := url.PathUnescape(segments[i])
		switch {
		case err != nil:
			return nil, false
		case strings.HasPrefix(t, "{"):
			params[strings.Trim(t, "{}")] = value
		case t != value:
			return nil, false
		}
	}
	return params, true
}

// validate checks a request against the document; empty means that it is allowed.
func (s *Server) validate(r *http.Request, c *call) string {
	if !s.legacy {
		for name := range r.URL.Query() {
			if c.op.Parameters.GetByInAndName("query", name) == nil {
				return "the document has no query parameter " + name
			}
		}
	}
	if c.op.RequestBody == nil && len(c.body) > 0 {
		return "the document has no body here"
	}
	err := openapi3filter.ValidateRequest(context.WithoutCancel(r.Context()), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: c.params,
		Route:   &routers.Route{Spec: s.doc, Path: c.path, PathItem: c.item, Method: r.Method, Operation: c.op},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true},
	})
	if err != nil {
		return strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return ""
}

// answer sends what was queued for the operation, or the document's example.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, c *call) {
	var next *Answer
	s.locked(func() {
		if queue := s.answers[c.op.OperationID]; len(queue) > 0 {
			next, s.answers[c.op.OperationID] = &queue[0], queue[1:]
		}
	})
	query := r.URL.Query()
	switch {
	case next != nil:
		s.queued(w, r, c, *next)
	case query.Get("watch") == "true" || query.Get("follow") == "true":
		s.stream(w, r, c)
	case query.Get("dryRun") == "true" && !s.legacy:
		s.dryRun(w, c)
	case c.op.OperationID == "ListClusters":
		s.listClusters(w)
	default:
		status := successOf(c.op)
		if status == http.StatusNoContent {
			w.WriteHeader(status)
			return
		}
		if value, ok := s.value(c, status); ok {
			value = s.page(value, c, query)
			s.etag(w, c, status)
			write(w, status, value)
			return
		}
		s.refuse(w, http.StatusInternalServerError, "the document has no example for "+c.op.OperationID)
	}
}

func (s *Server) queued(w http.ResponseWriter, r *http.Request, c *call, a Answer) {
	for k, v := range a.Header {
		w.Header().Set(k, v)
	}
	switch {
	case a.Hang && a.Status == 0:
		s.hang(r)
	case a.Body != "":
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(a.Status)
		_, _ = io.WriteString(w, a.Body)
		if a.Hang {
			w.(http.Flusher).Flush()
			s.hang(r)
		}
	default:
		s.example(w, c, a.Status)
	}
}

// hang holds a request until the client or the server goes away.
func (s *Server) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.done:
	}
}

// successOf is the status of a call that did its work.
func successOf(op *openapi3.Operation) int {
	best := 0
	for code, ref := range op.Responses.Map() {
		status, err := strconv.Atoi(code)
		if err != nil || status < 200 || status > 299 || isDryRun(ref.Value) {
			continue
		}
		if best == 0 || status < best {
			best = status
		}
	}
	return best
}

func isDryRun(r *openapi3.Response) bool {
	media := r.Content.Get("application/json")
	return media != nil && media.Schema != nil && strings.HasSuffix(media.Schema.Ref, "/DryRunResult")
}

// value is the example of a status, copied.
func (s *Server) value(c *call, status int) (any, bool) {
	ref := c.op.Responses.Status(status)
	if ref == nil || ref.Value == nil {
		return nil, false
	}
	media := ref.Value.Content.Get("application/json")
	if media == nil {
		return nil, false
	}
	return clone(exampleOf(media)), exampleOf(media) != nil
}

// exampleOf is the example that is not a dry run's.
func exampleOf(media *openapi3.MediaType) any {
	if media.Example != nil {
		return media.Example
	}
	for name, ref := range media.Examples {
		if ref.Value != nil && !strings.Contains(strings.ToLower(name), "dry") {
			return ref.Value.Value
		}
	}
	return nil
}

func (s *Server) example(w http.ResponseWriter, c *call, status int) {
	value, ok := s.value(c, status)
	if !ok {
		s.refuse(w, status, http.StatusText(status))
		return
	}
	write(w, status, value)
}

func (s *Server) refuse(w http.ResponseWriter, status int, message string) {
	write(w, status, map[string]any{"error": message})
}

// etag sets the header where the document declares it.
func (s *Server) etag(w http.ResponseWriter, c *call, status int) {
	if ref := c.op.Responses.Status(status); !s.legacy && ref != nil && ref.Value.Headers["ETag"] != nil {
		w.Header().Set("ETag", `"v1"`)
	}
}

func (s *Server) dryRun(w http.ResponseWriter, c *call) {
	for _, ref := range c.op.Responses.Map() {
		media := ref.Value.Content.Get("application/json")
		if media == nil {
			continue
		}
		if isDryRun(ref.Value) && media.Example != nil {
			write(w, http.StatusOK, clone(media.Example))
			return
		}
		for name, example := range media.Examples {
			if strings.Contains(strings.ToLower(name), "dry") {
				write(w, http.StatusOK, clone(example.Value.Value))
				return
			}
		}
	}
	s.refuse(w, http.StatusInternalServerError, "the document has no example of a dry run of "+c.op.OperationID)
}

// stream sends the document's event stream and ends it.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, c *call) {
	media := c.op.Responses.Status(http.StatusOK).Value.Content.Get("text/event-stream")
	if media == nil || s.legacy {
		s.refuse(w, http.StatusInternalServerError, "the document has no stream for "+c.op.OperationID)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, media.Example)
	if r.URL.Query().Get("watch") == "true" { // the client connects again, and would for ever
		s.Next(c.op.OperationID, Answer{Status: http.StatusForbidden})
	}
}

func (s *Server) listClusters(w http.ResponseWriter) {
	list := []any{}
	for i, id := range s.clusters {
		list = append(list, map[string]any{"id": id, "name": strings.ToUpper(id), "local": i == 0})
	}
	write(w, http.StatusOK, map[string]any{"clusters": list, "multiCluster": len(list) > 1, "total": len(list)})
}

func write(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func clone(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var c any
	if json.Unmarshal(data, &c) != nil {
		return nil
	}
	return c
}
