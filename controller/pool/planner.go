package pool

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Pod is one Pod of a pool as the planner sees it.
type Pod struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	Phase           v1alpha1.PodPhase
	Ready           bool
	// ReadySince is when the Pod became Ready; zero while it is not.
	ReadySince time.Time
	// Serves is true while a sandbox runs in the Pod.
	Serves bool
	// Stale is true when the Pod is not of the pool's current revision.
	Stale bool
	// Dead is true when the Pod has failed or finished, or carries the marks of a claim without the claim.
	Dead bool
	// Why says how a dead Pod died.
	Why string
	// Terminating is true once the Pod is being deleted, or is known to have been asked to go.
	Terminating bool
}

func (p *Pod) idle() bool { return p.Phase == v1alpha1.PodIdle && !p.Dead && !p.Terminating }

// State is what a plan is made from.
type State struct {
	Desired int
	// MaxUnavailable bounds how many idle Pods a rollout may keep from being Ready at one time; at least 1.
	MaxUnavailable int
	Pods           []Pod
	// Creating are the Pods that were created but are not in Pods yet.
	Creating int
	// HoldCreates forbids new Pods for now (a pool whose Pods keep failing backs off).
	HoldCreates bool
}

// Plan is what to do next. It never both creates and deletes a healthy Pod.
type Plan struct {
	Create int
	// Delete are idle or dead Pods; the deletion is only valid at the version given.
	Delete []Pod
}

// Empty reports that there is nothing to do.
func (p *Plan) Empty() bool { return p.Create == 0 && len(p.Delete) == 0 }

// MakePlan decides the next step of a pool:
//
//   - dead Pods go, and do not count as capacity only once they are gone;
//   - too few Pods: create what is missing, no more than doubling what the pool may hold, the leaving ones included;
//   - too many: delete idle ones, the useless first (not Ready, then stale), then the oldest. Claimed Pods stay;
//   - as many as wanted: replace stale idle ones, as long as no more than MaxUnavailable idle Pods are not Ready.
func MakePlan(s State) Plan {
	var plan Plan
	var idle []Pod
	current, leaving := s.Creating, 0
	unready := s.Creating
	for _, p := range s.Pods {
		if p.Terminating {
			leaving++
			continue
		}
		current++
		switch {
		case p.Dead:
			plan.Delete = append(plan.Delete, p)
		case p.idle():
			idle = append(idle, p)
			if !p.Ready {
				unready++
			}
		}
	}
	if len(plan.Delete) > 0 {
		return plan
	}
	switch {
	case current < s.Desired:
		if !s.HoldCreates {
			plan.Create = max(0, min(s.Desired-current, 2*s.Desired-current-leaving))
		}
	case current > s.Desired:
		slices.SortFunc(idle, leastUseful)
		plan.Delete = idle[:min(len(idle), current-s.Desired)]
	default:
		plan.Delete = rollout(idle, unready, max(1, s.MaxUnavailable))
	}
	return plan
}

// rollout picks the stale idle Pods to replace now. A stale Pod that is not Ready serves nobody: it goes outside the
// budget, though never more than the budget at once.
func rollout(idle []Pod, unready, budget int) []Pod {
	var broken, ready []Pod
	for _, p := range idle {
		switch {
		case p.Stale && !p.Ready:
			broken = append(broken, p)
		case p.Stale:
			ready = append(ready, p)
		}
	}
	slices.SortFunc(broken, oldestFirst)
	slices.SortFunc(ready, oldestFirst)
	out := broken[:min(len(broken), budget)]
	return append(out, ready[:min(len(ready), max(0, budget-unready))]...)
}

func leastUseful(a, b Pod) int {
	return cmp.Or(boolFirst(!a.Ready, !b.Ready), boolFirst(a.Stale, b.Stale), oldestFirst(a, b))
}

func oldestFirst(a, b Pod) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

func boolFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
