// Package scale decides which member pool of an env serves a claim. It is pure: numbers in, choice out.
package scale

import "cmp"

// Candidate is a member pool as routing sees it.
type Candidate struct {
	Name string
	// Idle is how many Pods could be claimed right now, the ones already promised to a claim not counted.
	Idle int
	// Waiting is how many claims wait for this pool.
	Waiting int
	// Priority orders members that are equally available; a lower value is preferred.
	Priority int32
}

// Compare orders candidates, the best first: availability, then priority, then the larger margin, then the name, so
// that the choice does not depend on the order of a map.
func Compare(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(availability(b), availability(a)),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(b.Idle-b.Waiting, a.Idle-a.Waiting),
		cmp.Compare(a.Name, b.Name),
	)
}

func availability(c Candidate) int {
	if c.Idle > 0 {
		return 1
	}
	return 0
}
