package gateway

import (
	"net/http"
	"sync"
	"time"

	"navix.sh/agentbox/controller/claim"
)

// refusedWithin is how long envd may take to refuse a request whose proof only it can check: what lasts longer is in use.
const refusedWithin = 5 * time.Second

// use is the activity that a request is. One that the gateway has authorised itself is activity as long as it is open;
// one that envd has still to judge is once it is not refused, so that whoever has no right to a sandbox cannot keep it.
type use struct {
	hold    func() (release func())
	mu      sync.Mutex
	release func()
	over    bool
	waiting *time.Timer
}

func (g *Gateway) use(id string, p pass) *use {
	u := &use{hold: func() func() { return claim.Hold(g.claims, id) }}
	if p.Proven {
		u.begin()
	} else {
		u.waiting = time.AfterFunc(refusedWithin, u.begin)
	}
	return u
}

func (u *use) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over && u.release == nil {
		u.release = u.hold()
	}
}

// answered hears what became of the request. The preflight of a browser proves nothing.
func (u *use) answered(r *http.Response) {
	if r.StatusCode != http.StatusUnauthorized && r.Request.Method != http.MethodOptions {
		u.begin()
	}
}

func (u *use) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	if u.waiting != nil {
		u.waiting.Stop()
	}
	if u.release != nil {
		u.release()
	}
}
