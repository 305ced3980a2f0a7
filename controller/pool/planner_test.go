package pool

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func pod(name string, phase v1alpha1.PodPhase, flags ...string) Pod {
	p := Pod{Name: name, UID: types.UID(name), ResourceVersion: "1", Phase: phase, Ready: true, Created: time.Unix(int64(name[0]), 0)}
	for _, f := range flags {
		switch f {
		case "unready":
			p.Ready = false
		case "stale":
			p.Stale = true
		case "dead":
			p.Dead = true
		case "terminating":
			p.Terminating = true
		}
	}
	return p
}

func TestMakePlan(t *testing.T) {
	const idle, running = v1alpha1.PodIdle, v1alpha1.PodRunning
	tests := []struct {
		name   string
		state  State
		create int
		delete []string
	}{
		{name: "nothing wanted, nothing there"},
		{name: "empty pool", state: State{Desired: 3}, create: 3},
		{name: "creates in flight count", state: State{Desired: 3, Creating: 2, Pods: []Pod{pod("a", idle)}}},
		{name: "running counts", state: State{Desired: 2, Pods: []Pod{pod("a", running), pod("b", idle)}}},
		{name: "terminating does not count", state: State{Desired: 2, Pods: []Pod{pod("a", idle, "terminating"), pod("b", idle)}}, create: 1},
		{name: "but bounds the surge", state: State{Desired: 1, Pods: []Pod{pod("a", idle, "terminating"), pod("b", idle, "terminating")}}},
		{name: "unready Pods are held, not replaced", state: State{Desired: 2, Pods: []Pod{pod("a", idle, "unready"), pod("b", idle, "unready")}}},
		{name: "held back", state: State{Desired: 3, HoldCreates: true}},
		{name: "dead Pods go first", state: State{Desired: 2, Pods: []Pod{pod("a", idle, "dead")}}, delete: []string{"a"}},
		{name: "too many: the useless go first", state: State{Desired: 2, Pods: []Pod{
			pod("a", idle), pod("b", idle, "stale"), pod("c", idle, "unready"), pod("d", running),
		}}, delete: []string{"c", "b"}},
		{name: "too many: then the oldest", state: State{Desired: 1, Pods: []Pod{pod("b", idle), pod("a", idle)}}, delete: []string{"a"}},
		{name: "claimed Pods stay", state: State{Desired: 0, Pods: []Pod{pod("a", running), pod("b", v1alpha1.PodStarting), pod("c", v1alpha1.PodStopping), pod("d", idle)}}, delete: []string{"d"}},
		{name: "rollout within the budget", state: State{Desired: 4, MaxUnavailable: 2, Pods: []Pod{
			pod("a", idle, "stale"), pod("b", idle, "stale"), pod("c", idle, "stale"), pod("d", idle),
		}}, delete: []string{"a", "b"}},
		{name: "rollout waits for unready Pods", state: State{Desired: 3, MaxUnavailable: 1, Pods: []Pod{
			pod("a", idle, "stale"), pod("b", idle, "stale"), pod("c", idle, "unready"),
		}}},
		{name: "stale and unready go outside the budget", state: State{Desired: 3, MaxUnavailable: 1, Pods: []Pod{
			pod("a", idle, "stale", "unready"), pod("b", idle, "unready"), pod("c", idle),
		}}, delete: []string{"a"}},
		{name: "rollout goes on beside running sandboxes", state: State{Desired: 3, MaxUnavailable: 1, Pods: []Pod{
			pod("a", running, "stale"), pod("b", running, "stale"), pod("c", idle, "stale"),
		}}, delete: []string{"c"}},
		{name: "no rollout while the size is wrong", state: State{Desired: 3, MaxUnavailable: 1, Pods: []Pod{pod("a", idle, "stale")}}, create: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := MakePlan(tt.state)
			var names []string
			for _, p := range plan.Delete {
				names = append(names, p.Name)
			}
			if plan.Create != tt.create || fmt.Sprint(names) != fmt.Sprint(tt.delete) {
				t.Errorf("create %d, delete %v; want %d, %v", plan.Create, names, tt.create, tt.delete)
			}
		})
	}
}

// world is a cluster of one pool behind a cache that lags: what the planner sees is an earlier state of the truth.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	desired  int
	revision int
	truth    map[string]Pod
	stale    map[string]int // revision of each Pod
	history  [][]Pod
	seen     int // index into history of what the cache shows
	next     int
	now      time.Time
	exp      *expectations
	most     int
}

var worldPool = types.NamespacedName{Namespace: "ns", Name: "pool"}

func (w *world) record() {
	pods := make([]Pod, 0, len(w.truth))
	for name, p := range w.truth {
		p.Stale = w.stale[name] != w.revision
		pods = append(pods, p)
	}
	w.history = append(w.history, pods)
}

// view is what the cache shows: never older than what it showed before.
func (w *world) view() []Pod {
	w.seen += w.rng.IntN(len(w.history) - w.seen)
	pods := append([]Pod(nil), w.history[w.seen]...)
	for i := range pods {
		pods[i].Stale = w.stale[pods[i].Name] != w.revision
	}
	return pods
}

func (w *world) reconcile() Plan {
	pods := w.view()
	creating, _ := w.exp.settle(worldPool, pods, w.now)
	plan := MakePlan(State{Desired: w.desired, MaxUnavailable: max(1, w.desired/5), Pods: pods, Creating: creating})
	if plan.Create > 0 {
		for _, p := range plan.Delete {
			if !p.Dead {
				w.t.Fatalf("one plan creates %d and deletes %s", plan.Create, p.Name)
			}
		}
	}
	for range plan.Create {
		w.next++
		name := fmt.Sprintf("p%d", w.next)
		w.exp.expectCreate(worldPool, name, w.now)
		w.truth[name] = Pod{Name: name, UID: types.UID(name), ResourceVersion: "1", Phase: v1alpha1.PodIdle, Created: w.now}
		w.stale[name] = w.revision
		w.record()
	}
	for _, p := range plan.Delete {
		w.exp.expectDelete(worldPool, p.UID, w.now)
		have, ok := w.truth[p.Name]
		if !ok || have.ResourceVersion != p.ResourceVersion { // the precondition
			w.exp.deleteFailed(worldPool, p.UID)
			continue
		}
		if have.Phase != v1alpha1.PodIdle && !have.Dead {
			w.t.Fatalf("Pod %s was deleted in phase %s", p.Name, have.Phase)
		}
		delete(w.truth, p.Name)
		w.record()
	}
	w.most = max(w.most, len(w.truth))
	return plan
}

// live moves the Pods on: they become ready, are claimed, are released, die.
func (w *world) live() {
	for name, p := range w.truth {
		switch w.rng.IntN(8) {
		case 0:
			p.Ready = true
		case 1:
			if p.Phase == v1alpha1.PodIdle && p.Ready {
				p.Phase = v1alpha1.PodRunning
			} else if p.Phase == v1alpha1.PodRunning {
				p.Phase = v1alpha1.PodIdle
			}
		case 2:
			if p.Phase == v1alpha1.PodIdle && w.rng.IntN(10) == 0 {
				p.Dead = true
			}
		default:
			continue
		}
		p.ResourceVersion += "+"
		w.truth[name] = p
		w.record()
	}
}

// TestPoolBehindALaggingCache drives the planner from views that lag behind its own writes and behind claims, through
// scaling and rollouts. The pool never grows past what was wanted, never deletes what is claimed, and settles: once
// nothing changes any more and the cache has caught up, there is exactly one plan left, the empty one.
func TestPoolBehindALaggingCache(t *testing.T) {
	for seed := range uint64(200) {
		w := &world{
			t: t, rng: rand.New(rand.NewPCG(seed, 1)), truth: map[string]Pod{}, stale: map[string]int{},
			now: time.Unix(1000, 0), exp: newExpectations(),
		}
		w.record()
		bound := 0
		for range 6 {
			w.desired = w.rng.IntN(20)
			bound = max(bound, w.desired)
			if w.rng.IntN(2) == 0 {
				w.revision++
				w.record()
			}
			for range 15 {
				w.reconcile()
				w.live()
			}
			if w.most > bound {
				t.Fatalf("seed %d: %d Pods when at most %d were ever wanted", seed, w.most, bound)
			}
		}
		// Quiet: everything idles and becomes ready, the cache catches up.
		for step := 0; ; step++ {
			for name, p := range w.truth {
				p.Phase, p.Ready, p.Dead = v1alpha1.PodIdle, true, false
				w.truth[name] = p
			}
			w.record()
			w.seen = len(w.history) - 1
			if plan := w.reconcile(); plan.Empty() {
				break
			}
			if step > 200 {
				t.Fatalf("seed %d: the pool does not settle", seed)
			}
		}
		if len(w.truth) != w.desired {
			t.Fatalf("seed %d: settled at %d Pods, wanted %d", seed, len(w.truth), w.desired)
		}
		for name := range w.truth {
			if w.stale[name] != w.revision {
				t.Fatalf("seed %d: settled with stale Pod %s", seed, name)
			}
		}
	}
}

func TestExpectationsEnd(t *testing.T) {
	e, now := newExpectations(), time.Unix(0, 0)
	e.expectCreate(worldPool, "lost", now)
	if n, again := e.settle(worldPool, nil, now); n != 1 || again != expectationTTL {
		t.Errorf("%d creating, again in %s", n, again)
	}
	if n, _ := e.settle(worldPool, nil, now.Add(expectationTTL)); n != 0 {
		t.Errorf("a create that never showed is waited for past its time")
	}
	e.expectDelete(worldPool, "x", now)
	pods := []Pod{pod("x", v1alpha1.PodIdle)}
	if e.settle(worldPool, pods, now); !pods[0].Terminating {
		t.Error("a Pod that was asked to go still counts")
	}
}
