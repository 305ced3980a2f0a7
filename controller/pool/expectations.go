package pool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// expectationTTL ends the wait for a write to show in the cache. A watch lags by seconds at worst; a created Pod
// that was deleted before the cache saw it would otherwise be waited for for ever.
const expectationTTL = time.Minute

// expectations remember this process's own writes until the cache shows them, so that a pool is never judged by a
// cache that has not caught up (the classic way in which a pool grows without end).
type expectations struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]*poolExpectations
}

type poolExpectations struct {
	created map[string]time.Time    // Pod name → when
	deleted map[types.UID]time.Time // Pod UID → when
}

func newExpectations() *expectations {
	return &expectations{pools: map[types.NamespacedName]*poolExpectations{}}
}

func (e *expectations) of(pool types.NamespacedName) *poolExpectations {
	p := e.pools[pool]
	if p == nil {
		p = &poolExpectations{created: map[string]time.Time{}, deleted: map[types.UID]time.Time{}}
		e.pools[pool] = p
	}
	return p
}

// expectCreate is called before the create is sent: its answer may be lost.
func (e *expectations) expectCreate(pool types.NamespacedName, name string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(pool).created[name] = now
}

// createFailed takes back a create that certainly did not happen.
func (e *expectations) createFailed(pool types.NamespacedName, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.of(pool).created, name)
}

func (e *expectations) expectDelete(pool types.NamespacedName, uid types.UID, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(pool).deleted[uid] = now
}

func (e *expectations) deleteFailed(pool types.NamespacedName, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.of(pool).deleted, uid)
}

// settle compares the cache's view with what is expected: it marks Pods that were asked to go as terminating,
// returns how many created Pods the cache does not show yet, and when to look again at the latest.
func (e *expectations) settle(pool types.NamespacedName, pods []Pod, now time.Time) (creating int, again time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pools[pool]
	if p == nil {
		return 0, 0
	}
	seen := make(map[types.UID]bool, len(pods))
	for i := range pods {
		delete(p.created, pods[i].Name)
		if _, ok := p.deleted[pods[i].UID]; ok {
			pods[i].Terminating = true
			seen[pods[i].UID] = true
		}
	}
	wait := func(since time.Time) bool {
		left := expectationTTL - now.Sub(since)
		if left > 0 && (again == 0 || left < again) {
			again = left
		}
		return left > 0
	}
	for name, since := range p.created {
		if wait(since) {
			creating++
		} else {
			delete(p.created, name)
		}
	}
	for uid, since := range p.deleted {
		if !seen[uid] || !wait(since) {
			delete(p.deleted, uid)
		}
	}
	return creating, again
}

func (e *expectations) forget(pool types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pools, pool)
}
