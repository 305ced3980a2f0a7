package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/openapi"
)

// Handler is the native API. It serves /v1, /api/clusters, /api/clusters/{cluster}/v1 and /openapi.yaml, and answers
// everything else as not found.
type Handler struct {
	Options
	log       *slog.Logger
	document  *document
	router    *router
	handlers  map[string]handlerFunc
	ledger    *catalogue.Ledger
	approvals *access.Approvals
	metrics   *metrics
}

var _ http.Handler = (*Handler)(nil)

// New makes the API's handler. Start runs what it does in the background.
func New(o Options) (*Handler, error) {
	switch {
	case o.Client == nil:
		return nil, errors.New("native: Options.Client is required")
	case o.Claims == nil:
		return nil, errors.New("native: Options.Claims is required")
	case o.Access == nil:
		return nil, errors.New("native: Options.Access is required")
	case o.ClusterID == "":
		return nil, errors.New("native: Options.ClusterID is required")
	}
	if o.SystemNamespace == "" {
		o.SystemNamespace = v1alpha1.SystemNamespace
	}
	if o.ClusterName == "" {
		o.ClusterName = o.ClusterID
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.PublicURL == nil {
		o.PublicURL = requestURL
	}
	if o.Catalogue == nil {
		o.Catalogue = &catalogue.Catalogue{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	d, err := loadDocument()
	if err != nil {
		return nil, err
	}
	h := &Handler{
		Options: o, log: o.Logger.With("component", "native"), document: d, router: newRouter(d),
		handlers: handlers(), ledger: catalogue.NewLedger(o.Client, o.SystemNamespace, o.Catalogue),
		approvals: o.Access.NewApprovals(),
	}
	if err := h.complete(); err != nil {
		return nil, err
	}
	if h.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("native: register the metrics: %w", err)
	}
	return h, nil
}

// complete makes sure that operations and handlers are the same set.
func (h *Handler) complete() error {
	var errs []error
	for id := range h.document.operations {
		if h.handlers[id] == nil {
			errs = append(errs, fmt.Errorf("native: operation %s has no handler", id))
		}
	}
	for id := range h.handlers {
		if h.document.operations[id] == nil {
			errs = append(errs, fmt.Errorf("native: handler %s serves no operation", id))
		}
	}
	return errors.Join(errs...)
}

// Start keeps the quotas true until ctx ends. It is a controller-runtime Runnable; one replica at a time runs it.
func (h *Handler) Start(ctx context.Context) error { return h.ledger.Start(ctx, h.log) }

// requestURL is the address that a request names itself.
func requestURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

var requestIDs = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// requestID takes over the client's id of a request where it is fit for a log line, or mints one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDs.MatchString(id) {
		return id
	}
	return uuid.NewString()
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := h.Now()
	id := requestID(r)
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("X-AgentBox-Server-Version", h.Version)
	rec := &statusRecorder{ResponseWriter: w}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // the value itself is what is thrown
				panic(p)
			}
			h.log.Error("a handler panicked", "requestId", id, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if rec.status == 0 {
				h.writeError(rec, id, asAPIError(errors.New("panic")))
			}
		}
		took := h.Now().Sub(started)
		h.metrics.answered(rec.operation, rec.status, took, rec.streamed)
		h.logRequest(r, id, rec.status, took)
	}()
	if r.URL.Path == "/openapi.yaml" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		rec.Header().Set("Content-Type", "application/yaml")
		_, _ = rec.Write(openapi.Native) // the client is gone: nobody to tell
		return
	}
	if err := h.serve(rec, r, id); err != nil {
		e := asAPIError(err)
		if e.status >= http.StatusInternalServerError && e.cause != nil {
			level := slog.LevelError
			if e.code == codeCapacity { // a platform that is full is no fault of it
				level = slog.LevelInfo
			}
			h.log.Log(r.Context(), level, "a request failed", "requestId", id, "method", r.Method, "path", r.URL.Path, "error", e.cause)
		}
		h.writeError(rec, id, e)
	}
}

func (h *Handler) logRequest(r *http.Request, id string, status int, took time.Duration) {
	level := slog.LevelDebug
	if isWrite(r.Method) {
		level = slog.LevelInfo
	}
	h.log.Log(r.Context(), level, "request", "requestId", id, "method", r.Method, "path", r.URL.Path, "status", status, "duration", took)
}

func (h *Handler) serve(w *statusRecorder, r *http.Request, id string) error {
	parts, err := segments(r.URL)
	if err != nil {
		return badParameter("escape every part of the path on its own", "%s", err)
	}
	f, isAPI := formOf(parts)
	if !isAPI {
		return noRoute(r, nil)
	}
	op, params, allowed := h.router.match(r.Method, f.rest)
	if op != nil {
		w.operation = op.id
	}
	var caller access.Caller
	if op == nil || !op.open {
		// Who may not ask anything learns nothing either, not even which paths there are.
		if caller, err = h.authenticate(r, op); err != nil {
			return err
		}
	}
	if f.cluster != "" && f.cluster != h.ClusterID && f.cluster != "default" {
		return notFound("cluster", f.cluster, "this address serves "+h.ClusterID)
	}
	if op == nil {
		return noRoute(r, allowed)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badParameter("escape the values", "the query string cannot be read: %s", err)
	}
	body, err := readBody(w, r, op)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c := &call{
		Handler: h, ctx: r.Context(), request: r, op: op, id: id, write: uuid.NewString(), caller: caller,
		params: params, query: query, body: body, apiBase: f.base,
	}
	if err := c.validate(); err != nil {
		return err
	}
	resp, err := h.handlers[op.id](c)
	if err != nil {
		return err
	}
	h.respond(w, c, resp)
	return nil
}

func (h *Handler) respond(w *statusRecorder, c *call, resp *response) {
	for name, values := range resp.header {
		w.Header()[name] = values
	}
	if resp.etag != "" {
		w.Header().Set("ETag", resp.etag)
	}
	switch {
	case resp.stream != nil:
		w.streamed = true
		h.metrics.streams.Inc()
		defer h.metrics.streams.Dec()
		s := newEventStream(w, c.ctx)
		if err := resp.stream(s); err != nil && c.ctx.Err() == nil {
			h.log.Warn("a stream ended early", "requestId", c.id, "operation", c.op.id, "error", err)
		}
	case resp.body == nil:
		w.WriteHeader(resp.status)
	default:
		writeJSON(w, resp.status, resp.body)
	}
}

// authenticate finds out who calls, from either header of either form. Impersonation does not reach /admin.
func (h *Handler) authenticate(r *http.Request, op *operation) (access.Caller, error) {
	key := r.Header.Get("AGENTBOX-API-KEY")
	if key == "" {
		key = bearer(r.Header.Get("Authorization"))
	}
	c, err := h.Access.Authenticate(r.Context(), key)
	if err != nil {
		return access.Caller{}, err
	}
	if op != nil && strings.HasPrefix(op.path, "/admin/") {
		return c, nil
	}
	as, err := h.Access.Impersonate(r.Context(), c, r.Header.Get("X-Impersonate-Team"), r.Header.Get("X-Impersonate-User"))
	if errors.Is(err, access.ErrInvalid) {
		return access.Caller{}, refuse(http.StatusForbidden, codeForbidden, "leave both headers out to act as yourself", "%s", err)
	}
	return as, err
}

func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// statusRecorder remembers what was answered, for the log, and still flushes.
type statusRecorder struct {
	http.ResponseWriter
	status    int
	operation string
	streamed  bool
}

func (s *statusRecorder) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusRecorder) Write(b []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }
