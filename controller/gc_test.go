package controller

import "testing"

func TestGCLoad(t *testing.T) {
	var load gcLoad
	for second, c := range []struct {
		collections uint64
		busy        bool
	}{
		{0, false}, {20, false}, {3, false}, // a start
		{4, false}, {9, false}, {4, true}, {1, true}, {2, true}, // a load
		{0, false}, {4, false},
	} {
		if got := load.observe(c.collections); got != c.busy {
			t.Errorf("second %d, %d collections: busy %v, want %v", second, c.collections, got, c.busy)
		}
	}
}
