package claim

import (
	"container/list"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/agentbox/controller/scale"
)

// lineKey names a line: the claims on one env, or on one pool that belongs to no env.
type lineKey struct {
	namespace string
	env, pool string
}

// line holds the claims that wait, first come first served. The order is that of the ticket numbers: a claim whose
// Pod was lost to somebody else returns to its old place.
type line struct {
	waiting list.List // of *waiter
}

// waiter is one claim before it has a Pod.
type waiter struct {
	ticket uint64
	key    lineKey
	// pool and group narrow which pools may serve the claim; empty means any of the env.
	pool, group string
	team, user  string
	// given receives the Pod that is reserved for the claim. It has room for one.
	given chan *trackedPod
	place *list.Element
	line  *line
	// counted is the pool whose Waiting number includes the claim.
	counted types.NamespacedName
}

func (pl *trackedPool) lineKey() lineKey {
	if pl.env != "" {
		return lineKey{namespace: pl.key.Namespace, env: pl.env}
	}
	return lineKey{namespace: pl.key.Namespace, pool: pl.key.Name}
}

// accepts reports whether the pool may serve the claim.
func (w *waiter) accepts(pl *trackedPool) bool {
	return !pl.absent && !pl.deleting && pl.lineKey() == w.key &&
		(w.pool == "" || w.pool == pl.key.Name) &&
		(w.group == "" || w.group == pl.group) &&
		pl.ownedBy(w.team, w.user)
}

// ownedBy reports whether an owner may use the pool. A pool without owner labels is open to its whole namespace; an
// owner without a team (an administrator) may use every pool.
func (pl *trackedPool) ownedBy(team, user string) bool {
	return (pl.team == "" || team == "" || pl.team == team) && (pl.user == "" || user == "" || pl.user == user)
}

// candidates are the pools that may serve the claim, the best first. The caller holds mu.
func (m *Manager) candidates(w *waiter) []*trackedPool {
	var pools []*trackedPool
	if w.pool != "" {
		if pl := m.pools[types.NamespacedName{Namespace: w.key.namespace, Name: w.pool}]; pl != nil && w.accepts(pl) {
			pools = append(pools, pl)
		}
		return pools
	}
	env := m.envs[types.NamespacedName{Namespace: w.key.namespace, Name: w.key.env}]
	if env == nil {
		return nil
	}
	for name := range env.members {
		if pl := m.pools[types.NamespacedName{Namespace: w.key.namespace, Name: name}]; pl != nil && w.accepts(pl) {
			pools = append(pools, pl)
		}
	}
	slices.SortFunc(pools, func(a, b *trackedPool) int {
		return scale.Compare(a.candidate(m.waiting[a.key]), b.candidate(m.waiting[b.key]))
	})
	return pools
}

func (pl *trackedPool) candidate(waiting int) scale.Candidate {
	return scale.Candidate{Name: pl.key.Name, Idle: pl.idle.Len(), Waiting: waiting, Priority: pl.priority}
}

// join gives the claim a Pod, or a place in its line. The caller holds mu.
func (m *Manager) join(w *waiter) error {
	pools := m.candidates(w)
	if len(pools) == 0 {
		return m.noCandidate(w)
	}
	if pl := pools[0]; pl.idle.Len() > 0 {
		m.give(w, pl)
		return nil
	}
	if !slices.ContainsFunc(pools, func(pl *trackedPool) bool { return pl.replicas > 0 }) {
		// Scaling policies change nothing about this: they are stored, and nobody acts on them yet.
		return &Error{
			Code:    CodeNoCapacity,
			Message: fmt.Sprintf("%s is scaled to zero Pods and does not scale by itself", describe(w)),
			Hint:    "scale a pool up: abx scale envs <env> pools <pool> --replicas <n>",
		}
	}
	l := m.lines[w.key]
	if l == nil {
		l = &line{}
		m.lines[w.key] = l
	}
	if l.waiting.Len() >= m.opts.MaxWaiting {
		return &Error{
			Code:       CodeQueueFull,
			Message:    fmt.Sprintf("%d claims wait for %s already", l.waiting.Len(), describe(w)),
			Hint:       "try again later, or scale the pool up",
			RetryAfter: 5 * time.Second,
		}
	}
	w.line = l
	w.place = nil
	for e := l.waiting.Back(); e != nil; e = e.Prev() {
		if e.Value.(*waiter).ticket < w.ticket {
			w.place = l.waiting.InsertAfter(w, e)
			break
		}
	}
	if w.place == nil {
		w.place = l.waiting.PushFront(w)
	}
	w.counted = pools[0].key
	m.countWaiting(w.counted, 1)
	return nil
}

// leave takes a claim out of its line. It reports false when a Pod was given meanwhile. The caller holds mu.
func (m *Manager) leave(w *waiter) bool {
	if w.place == nil {
		return false
	}
	w.line.waiting.Remove(w.place)
	w.place = nil
	m.countWaiting(w.counted, -1)
	if w.line.waiting.Len() == 0 {
		delete(m.lines, w.key)
	}
	return true
}

// give reserves the pool's longest idle Pod for the claim. The caller holds mu.
func (m *Manager) give(w *waiter, pl *trackedPool) {
	p := pl.idle.Front().Value.(*trackedPod)
	m.unqueue(p)
	p.reserved = w
	w.given <- p
}

// offer hands the pool's idle Pods to the claims that wait for them. The caller holds mu.
func (m *Manager) offer(pl *trackedPool) {
	if pl.absent || pl.idle.Len() == 0 {
		return
	}
	l := m.lines[pl.lineKey()]
	if l == nil {
		return
	}
	for e := l.waiting.Front(); e != nil && pl.idle.Len() > 0; {
		w := e.Value.(*waiter)
		e = e.Next()
		if w.accepts(pl) {
			m.leave(w)
			m.give(w, pl)
		}
	}
}

// noCandidate says why no pool can serve the claim. What belongs to somebody else is reported as missing.
func (m *Manager) noCandidate(w *waiter) error {
	if w.pool != "" {
		return m.notFound("pool", w.pool, w, func(yield func(string)) {
			for k, pl := range m.pools {
				if k.Namespace == w.key.namespace && !pl.absent && pl.ownedBy(w.team, w.user) {
					yield(k.Name)
				}
			}
		})
	}
	env := m.envs[types.NamespacedName{Namespace: w.key.namespace, Name: w.key.env}]
	if env == nil || env.deleting {
		return m.notFound("environment", w.key.env, w, func(yield func(string)) {
			for k := range m.envs {
				if k.Namespace == w.key.namespace {
					yield(k.Name)
				}
			}
		})
	}
	groups, owned := map[string]bool{}, len(env.members) == 0
	for name := range env.members {
		pl := m.pools[types.NamespacedName{Namespace: w.key.namespace, Name: name}]
		if pl == nil || pl.absent {
			owned = true
		} else if pl.ownedBy(w.team, w.user) {
			owned = true
			groups[pl.group] = true
		}
	}
	switch {
	case !owned:
		return m.notFound("environment", w.key.env, w, func(func(string)) {})
	case w.group != "" && len(groups) > 0:
		return &Error{
			Code:    CodeNoCapacity,
			Message: fmt.Sprintf("environment %q has no pool in scaling group %q", w.key.env, w.group),
			Hint:    "its scaling groups: " + strings.Join(sortedKeys(groups), ", "),
		}
	default:
		return &Error{
			Code:       CodeNoCapacity,
			Message:    fmt.Sprintf("environment %q has no pool on cluster %q that can serve a sandbox", w.key.env, m.opts.ClusterID),
			Hint:       "add a pool to the environment, or wait until its pools exist",
			RetryAfter: 5 * time.Second,
		}
	}
}

func (m *Manager) notFound(kind, name string, w *waiter, names func(yield func(string))) error {
	const most = 20
	known := map[string]bool{}
	names(func(n string) { known[n] = true })
	hint := fmt.Sprintf("there is no %s in namespace %q", kind, w.key.namespace)
	if all := sortedKeys(known); len(all) > most {
		hint = fmt.Sprintf("known: %s, and %d more", strings.Join(all[:most], ", "), len(all)-most)
	} else if len(all) > 0 {
		hint = "known: " + strings.Join(all, ", ")
	}
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("%s %q not found", kind, name), Hint: hint}
}

func describe(w *waiter) string {
	switch {
	case w.pool != "":
		return fmt.Sprintf("pool %q", w.pool)
	case w.group != "":
		return fmt.Sprintf("scaling group %q of environment %q", w.group, w.key.env)
	default:
		return fmt.Sprintf("environment %q", w.key.env)
	}
}

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
