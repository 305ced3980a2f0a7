package process

import (
	"context"
	"errors"
	"sync"
	"time"

	spec "navix.sh/agentbox/envd/spec/process"
)

// Limits of the output of one process. Memory is bounded by subscribers × queueBytes, whatever the process prints.
const (
	// queueBytes is how far a subscriber may fall behind the process.
	queueBytes = 1 << 20
	// eventOverhead is about what an event takes beside its data.
	eventOverhead = 256
	// lagGrace is how long a subscriber without room may hold up others that have room, before it is cut off.
	lagGrace = 2 * time.Second
)

// errLagging ends the stream of a subscriber that did not keep up while others did.
var errLagging = errors.New("this subscriber read too slowly while others kept up, and output was cut; connect to the process again for what follows")

// output hands the events of one process to its subscribers. Every subscriber gets the same events. A subscriber
// that is the only one slows the process down and misses nothing, as a pipe would; when there are several, the
// process runs at the pace of the fastest, and one that stays behind for lagGrace is cut off with errLagging.
// With no subscriber the output is discarded.
type output struct {
	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	// room is not nil while publish waits; it is closed when a subscriber takes something, leaves or joins.
	room chan struct{}
	end  *spec.ProcessEvent
	// hurried makes publish wait for nobody any more.
	hurried bool

	publishing sync.Mutex // keeps the events of stdout and stderr in one order for everybody
}

type subscriber struct {
	out    *output
	queue  []*spec.ProcessEvent
	bytes  int
	held   time.Duration // how long others waited for this one since it last caught up
	err    error
	notify chan struct{} // holds one token when there is something to take
}

func newOutput() *output {
	return &output{subscribers: map[*subscriber]struct{}{}}
}

// subscribe joins from now on. After the end, the end is all that a subscriber gets.
func (o *output) subscribe() *subscriber {
	s := &subscriber{out: o, notify: make(chan struct{}, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end != nil {
		s.put(o.end)
		return s
	}
	o.subscribers[s] = struct{}{}
	o.roomChanged()
	return s
}

// leave must be called once the subscriber is no longer read.
func (s *subscriber) leave() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	delete(s.out.subscribers, s)
	s.queue = nil
	s.out.roomChanged()
}

// next waits for an event. It answers the event, ctx's error, errLagging, or nothing at all when beat ticks first.
// After the end event nothing follows.
func (s *subscriber) next(ctx context.Context, beat <-chan time.Time) (*spec.ProcessEvent, error) {
	for {
		if event, err := s.take(); event != nil || err != nil {
			return event, err
		}
		select {
		case <-s.notify:
		case <-beat:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *subscriber) take() (*spec.ProcessEvent, error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if len(s.queue) == 0 {
		return nil, nil
	}
	event := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	s.bytes -= size(event)
	if len(s.queue) == 0 {
		s.held = 0
	}
	s.out.roomChanged()
	return event, nil
}

// put needs out.mu.
func (s *subscriber) put(event *spec.ProcessEvent) {
	s.queue = append(s.queue, event)
	s.bytes += size(event)
	s.wake()
}

func (s *subscriber) wake() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// publish gives a data event to every subscriber, waiting as the type's comment says. After the end it does nothing.
func (o *output) publish(event *spec.ProcessEvent) {
	o.publishing.Lock()
	defer o.publishing.Unlock()
	for {
		o.mu.Lock()
		full := o.full()
		switch {
		case o.end != nil:
			o.mu.Unlock()
			return
		case o.hurried:
			for _, s := range full {
				o.cut(s)
			}
			fallthrough
		case len(full) == 0:
			o.deliver(event)
			o.mu.Unlock()
			return
		}
		room := o.awaitRoom()
		if len(full) == len(o.subscribers) {
			o.mu.Unlock()
			<-room
			continue
		}
		patience := lagGrace
		for _, s := range full {
			patience = min(patience, lagGrace-s.held)
		}
		o.mu.Unlock()
		o.holdUp(full, room, patience)
	}
}

// holdUp waits for room and charges the wait to those that had none. Who has used up lagGrace without ever catching
// up in between is cut off.
func (o *output) holdUp(full []*subscriber, room <-chan struct{}, patience time.Duration) {
	began := time.Now()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-room:
	case <-timer.C:
	}
	waited := time.Since(began)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range full {
		s.held += waited
		if _, there := o.subscribers[s]; there && s.held >= lagGrace && s.bytes >= queueBytes {
			o.cut(s)
		}
	}
}

// full lists the subscribers without room; it needs mu.
func (o *output) full() []*subscriber {
	var full []*subscriber
	for s := range o.subscribers {
		if s.bytes >= queueBytes {
			full = append(full, s)
		}
	}
	return full
}

func (o *output) deliver(event *spec.ProcessEvent) {
	for s := range o.subscribers {
		s.put(event)
	}
}

func (o *output) cut(s *subscriber) {
	s.err, s.queue = errLagging, nil
	delete(o.subscribers, s)
	s.wake()
}

// finish delivers the end event, once, to whoever is there and to whoever comes later.
func (o *output) finish(end *spec.ProcessEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end != nil {
		return
	}
	o.end = end
	o.deliver(end)
	o.roomChanged()
}

// hurry cuts whoever does not keep up from now on, so that the process can come to its end.
func (o *output) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hurried = true
	o.roomChanged()
}

// awaitRoom returns a channel that the next change of room closes; it needs mu.
func (o *output) awaitRoom() <-chan struct{} {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// roomChanged needs mu.
func (o *output) roomChanged() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// size is what an event costs in memory. A flood of tiny ones is mostly overhead.
func size(event *spec.ProcessEvent) int {
	data := event.GetData()
	return len(data.GetStdout()) + len(data.GetStderr()) + len(data.GetPty()) + eventOverhead
}
