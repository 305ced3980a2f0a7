package claim

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// timers fires once for every sandbox whose end has come. An entry is looked at again when it is due: activity moves
// a sandbox's end without touching the heap.
type timers struct {
	clock clock.WithTicker
	mu    sync.Mutex
	heap  timerHeap
	// poke tells the loop that the earliest entry has changed.
	poke chan struct{}
}

type timerEntry struct {
	at    time.Time
	sb    *sandbox
	index int // -1 when not in the heap
}

func newTimers(c clock.WithTicker) *timers {
	return &timers{clock: c, poke: make(chan struct{}, 1)}
}

// set makes the sandbox due at a time; the zero time never is.
func (t *timers) set(sb *sandbox, at time.Time) { t.put(sb, at, true) }

// put adds or, when move is true, moves the sandbox's entry.
func (t *timers) put(sb *sandbox, at time.Time, move bool) {
	t.mu.Lock()
	e := &sb.timer
	switch {
	case e.index >= 0 && !move:
	case at.IsZero() && e.index >= 0:
		heap.Remove(&t.heap, e.index)
	case at.IsZero():
	case e.index >= 0:
		e.at = at
		heap.Fix(&t.heap, e.index)
	default:
		e.at, e.sb = at, sb
		heap.Push(&t.heap, e)
	}
	first := e.index == 0
	t.mu.Unlock()
	if first {
		select {
		case t.poke <- struct{}{}:
		default:
		}
	}
}

// run calls due for every sandbox whose time has come. due says when to look again; zero means never.
func (t *timers) run(ctx context.Context, due func(*sandbox) time.Time) {
	for ctx.Err() == nil {
		now := t.clock.Now()
		var ready *sandbox
		var wait <-chan time.Time
		var timer clock.Timer
		t.mu.Lock()
		if len(t.heap) > 0 {
			if first := t.heap[0]; first.at.After(now) {
				timer = t.clock.NewTimer(first.at.Sub(now))
				wait = timer.C()
			} else {
				ready = first.sb
				heap.Pop(&t.heap)
			}
		}
		t.mu.Unlock()
		if ready != nil {
			if at := due(ready); !at.IsZero() {
				// Somebody may have set a new end since due looked: that one stands.
				t.put(ready, at, false)
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-wait:
		case <-t.poke:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

type timerHeap []*timerEntry

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	e := x.(*timerEntry)
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *timerHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
