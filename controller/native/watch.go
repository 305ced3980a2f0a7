package native

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// settle is how long a watch waits after a change for others to come with it.
	settle = 50 * time.Millisecond
	// lookAgain is how often a watch compares rows whose changes nothing tells it about.
	lookAgain = time.Second
	// keepAlive is how often an idle stream says that it is alive, below the idle timeouts that proxies have.
	keepAlive = 15 * time.Second
)

// eventStream writes server-sent events.
type eventStream struct {
	w    http.ResponseWriter
	ctx  context.Context
	ctrl *http.ResponseController
}

func newEventStream(w http.ResponseWriter, ctx context.Context) *eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	s := &eventStream{w: w, ctx: ctx, ctrl: http.NewResponseController(w)}
	// The client learns at once that it is connected. Where that fails, so does the first event.
	_ = s.ctrl.Flush()
	return s
}

// send writes one event.
func (s *eventStream) send(v any) error {
	var buf bytes.Buffer
	buf.WriteString("data: ")
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	buf.WriteByte('\n')
	return s.write(buf.Bytes())
}

// alive writes a comment, which clients ignore.
func (s *eventStream) alive() error { return s.write([]byte(": alive\n\n")) }

func (s *eventStream) write(b []byte) error {
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.ctrl.Flush()
}

// watchEvent is WatchEvent of the document.
type watchEvent struct {
	Type   string `json:"type"`
	Kind   string `json:"kind,omitempty"`
	Object any    `json:"object,omitempty"`
}

// changeSource signals that the rows of a collection may have changed, until ctx ends. The channel closes when it
// cannot tell any longer.
type changeSource func(ctx context.Context) (<-chan struct{}, error)

// watch streams the rows there are, a BOOKMARK, and then what becomes different about them. Each change is found by
// comparing the rows, so that filters hold for what a row was and for what it is.
func (l lister[T]) watch(c *call, rows func(context.Context) ([]T, error)) (*response, error) {
	var changes <-chan struct{}
	if l.changes != nil {
		var err error
		if changes, err = l.changes(c.ctx); err != nil {
			return nil, err
		}
	}
	first, err := rows(c.ctx)
	if err != nil {
		return nil, err
	}
	return &response{stream: func(s *eventStream) error {
		seen := map[string]string{}
		if err := l.compare(s, seen, first); err != nil {
			return err
		}
		if err := s.send(watchEvent{Type: "BOOKMARK"}); err != nil {
			return err
		}
		return l.follow(c, s, changes, func() error {
			now, err := rows(s.ctx)
			if err != nil {
				return err
			}
			return l.compare(s, seen, now)
		})
	}}, nil
}

// follow calls look after changes, and keeps the stream alive between them. It ends with the client, and when the key
// that opened it does not work any more.
func (l lister[T]) follow(c *call, s *eventStream, changes <-chan struct{}, look func() error) error {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	every := time.NewTicker(lookAgain)
	defer every.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-c.Stopping:
			return nil
		case <-alive.C:
			if err := s.alive(); err != nil {
				return err
			}
		case <-every.C:
			if !c.keyWorks() {
				return nil
			}
			if changes != nil {
				continue
			}
			if err := look(); err != nil {
				return err
			}
		case _, open := <-changes:
			if !open || !c.keyWorks() {
				return nil // the client connects again and compares
			}
			if err := pause(s.ctx, settle); err != nil {
				return nil //nolint:nilerr // the client has gone
			}
			if err := look(); err != nil {
				return err
			}
		}
	}
}

// keyWorks reports whether the key of a call that lasts still works: it may have been revoked, or have expired.
func (c *call) keyWorks() bool {
	k, known := c.Access.Get(c.caller.KeyID)
	return known && !k.Expired(c.Now())
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// compare sends the differences between what the client has seen and the rows now.
func (l lister[T]) compare(s *eventStream, seen map[string]string, rows []T) error {
	now := make(map[string]bool, len(rows))
	for _, row := range rows {
		key := l.key(row)
		now[key] = true
		raw, err := json.Marshal(row)
		if err != nil {
			return err
		}
		was, known := seen[key]
		if known && was == string(raw) {
			continue
		}
		seen[key] = string(raw)
		kind := "ADDED"
		if known {
			kind = "MODIFIED"
		}
		if err := s.send(watchEvent{Type: kind, Kind: l.kind, Object: row}); err != nil {
			return err
		}
	}
	for key, was := range seen {
		if now[key] {
			continue
		}
		delete(seen, key)
		if err := s.send(watchEvent{Type: "DELETED", Kind: l.kind, Object: json.RawMessage(was)}); err != nil {
			return err
		}
	}
	return nil
}

// watchObjects signals changes of Kubernetes objects. A burst is one signal.
func (h *Handler) watchObjects(list client.ObjectList, opts ...client.ListOption) changeSource {
	return func(ctx context.Context) (<-chan struct{}, error) {
		w, err := h.Client.Watch(ctx, list, opts...)
		if err != nil {
			return nil, err
		}
		out := make(chan struct{}, 1)
		go func() {
			defer close(out)
			defer w.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case e, open := <-w.ResultChan():
					if !open || e.Type == watch.Error {
						return
					}
					select {
					case out <- struct{}{}:
					default: // a signal is waiting already
					}
				}
			}
		}()
		return out, nil
	}
}
