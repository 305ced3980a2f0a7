package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrClosed is what Append answers once the store has stopped.
var ErrClosed = errors.New("the record store has stopped")

// Store holds the records in memory and on the API server. It is safe for concurrent use.
type Store struct {
	batches *batches
	limits  Limits
	clock   clock.WithTicker
	log     *slog.Logger

	mu      sync.Mutex
	byID    map[string]*Record
	byEnd   []*Record // oldest first
	pending map[string]*pendingRecord
	closed  bool
	wake    chan struct{}
}

type pendingRecord struct {
	record *Record
	done   chan struct{} // closed when durable, or when the store stops
	err    error         // read after done
}

// New makes a store on the ConfigMaps of a namespace. Call Load, then Run.
func New(c client.Client, namespace string, limits Limits, clk clock.WithTicker, log *slog.Logger) *Store {
	return &Store{
		batches: &batches{client: c, namespace: namespace, log: log},
		limits:  limits.withDefaults(),
		clock:   clk,
		log:     log,
		byID:    map[string]*Record{},
		pending: map[string]*pendingRecord{},
		wake:    make(chan struct{}, 1),
	}
}

// Load reads what earlier processes wrote.
func (s *Store) Load(ctx context.Context) error {
	records, err := s.batches.load(ctx)
	if err != nil {
		return fmt.Errorf("load the records of finished sandboxes: %w", err)
	}
	slices.SortFunc(records, func(a, b *Record) int { return a.TerminatedAt.Compare(b.TerminatedAt) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		s.insert(r)
	}
	return nil
}

// Append keeps a record. It returns once the record is durable, or with the reason why that is not known.
// Appending a sandbox again is harmless: the first record stands.
func (s *Store) Append(ctx context.Context, r Record) error {
	s.mu.Lock()
	if _, ok := s.byID[r.SandboxID]; ok {
		s.mu.Unlock()
		return nil
	}
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	p, ok := s.pending[r.SandboxID]
	if !ok {
		p = &pendingRecord{record: &r, done: make(chan struct{})}
		s.pending[r.SandboxID] = p
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Get returns a record, also one that is still on its way to the disk.
func (s *Store) Get(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.byID[id]; ok && !s.expired(r) {
		return *r, true
	}
	if p, ok := s.pending[id]; ok {
		return *p.record, true
	}
	return Record{}, false
}

// List returns the records that match, in no particular order.
func (s *Store) List(match func(*Record) bool) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Record
	for _, r := range s.byEnd {
		if !s.expired(r) && match(r) {
			out = append(out, *r)
		}
	}
	for _, p := range s.pending {
		if match(p.record) {
			out = append(out, *p.record)
		}
	}
	return out
}

func (s *Store) expired(r *Record) bool {
	return s.clock.Since(r.TerminatedAt) > s.limits.TTL
}

// insert makes a durable record visible. The caller holds mu.
func (s *Store) insert(r *Record) {
	if _, ok := s.byID[r.SandboxID]; ok {
		return
	}
	s.byID[r.SandboxID] = r
	at, _ := slices.BinarySearchFunc(s.byEnd, r, func(a, b *Record) int {
		return cmp.Or(a.TerminatedAt.Compare(b.TerminatedAt), -1)
	})
	s.byEnd = slices.Insert(s.byEnd, at, r)
}

// Run writes batches until ctx ends, then writes what is left and answers every waiting Append.
func (s *Store) Run(ctx context.Context) {
	sweep := s.clock.NewTicker(min(s.limits.TTL, time.Minute))
	defer sweep.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-sweep.C():
			s.expire(ctx)
		case <-s.wake:
			s.flush(ctx)
			s.expire(ctx)
			s.pause(ctx, s.limits.FlushEvery)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	s.flushOnce(last)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for id, p := range s.pending {
		p.err = ErrClosed
		close(p.done)
		delete(s.pending, id)
	}
}

// flush writes everything that waits. A failed batch is tried again under the same name, so that a write whose answer
// was lost is not made twice.
func (s *Store) flush(ctx context.Context) {
	backoff := 100 * time.Millisecond
	for ctx.Err() == nil {
		batch := s.takeBatch()
		if len(batch) == 0 {
			return
		}
		name := newBatchName(s.clock.Now())
		for {
			err := s.writeBatch(ctx, name, batch)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			s.log.Error("records of finished sandboxes are not written yet; trying again", "count", len(batch), "error", err)
			s.pause(ctx, backoff)
			backoff = min(2*backoff, 5*time.Second)
		}
	}
}

// flushOnce writes what waits when the store stops. What fails now is written by the next process, from the Pods.
func (s *Store) flushOnce(ctx context.Context) {
	for {
		batch := s.takeBatch()
		if len(batch) == 0 {
			return
		}
		if err := s.writeBatch(ctx, newBatchName(s.clock.Now()), batch); err != nil {
			s.log.Warn("records of finished sandboxes are left to the next process", "count", len(batch), "error", err)
			return
		}
	}
}

func (s *Store) writeBatch(ctx context.Context, name string, batch []*pendingRecord) error {
	records := make([]*Record, len(batch))
	for i, p := range batch {
		records[i] = p.record
	}
	if err := s.batches.write(ctx, name, records); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range batch {
		s.insert(p.record)
		delete(s.pending, p.record.SandboxID)
		close(p.done)
	}
	return nil
}

func (s *Store) takeBatch() []*pendingRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch []*pendingRecord
	for _, p := range s.pending {
		if batch = append(batch, p); len(batch) == maxBatchRecords {
			break
		}
	}
	return batch
}

// expire forgets what is too old or too much, and tidies the batches.
func (s *Store) expire(ctx context.Context) {
	s.mu.Lock()
	drop := max(0, len(s.byEnd)-s.limits.Max)
	for drop < len(s.byEnd) && s.expired(s.byEnd[drop]) {
		drop++
	}
	for _, r := range s.byEnd[:drop] {
		delete(s.byID, r.SandboxID)
		s.batches.forget(r.SandboxID)
	}
	s.byEnd = slices.Delete(s.byEnd, 0, drop)
	lookup := func(id string) *Record {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.byID[id]
	}
	s.mu.Unlock()
	if err := s.batches.tidy(ctx, s.clock.Now(), lookup); err != nil && ctx.Err() == nil {
		s.log.Warn("batches of records are not tidied yet", "error", err)
	}
}

func (s *Store) pause(ctx context.Context, d time.Duration) {
	t := s.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
	case <-ctx.Done():
	}
}
