package claim

import (
	"sync"
	"time"
)

// holdTick is how often a hold records activity: more often than the shortest timeout, a second, lets pass.
const holdTick = 500 * time.Millisecond

// Hold records activity on a sandbox until release is called: what is under way in it is activity, however silent.
func Hold(s Service, id string) (release func()) {
	h := &hold{touch: func() { s.Touch(id) }}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.touch()
	h.timer = time.AfterFunc(holdTick, h.tick)
	return h.release
}

type hold struct {
	touch func()
	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

func (h *hold) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.touch()
		h.timer.Reset(holdTick)
	}
}

func (h *hold) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.timer.Stop()
	h.touch()
}
