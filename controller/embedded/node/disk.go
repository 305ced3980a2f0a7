package node

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Few Pods have a limit on what they write, and the platform's own store lives on the same disk. So before the disk is
// full the Pod that holds most of it goes, as a kubelet evicts under disk pressure.
const (
	diskEvery = 250 * time.Millisecond
	// diskSettle is how long an eviction may take to free what it frees before there is another.
	diskSettle = 5 * time.Second
	// maxDiskFloor is the room that is kept, in bytes, at most; on a small disk it is a twentieth.
	maxDiskFloor = 1 << 30
	// maxCounted bounds how many files of one Pod are looked at: a Pod that has more of them is counted as far as that.
	maxCounted = 200_000
)

// guardDisk evicts while the disk has too little room. It ends with the agent.
func (a *Agent) guardDisk() {
	a.every(diskEvery, func() {
		free, floor, err := diskRoom(a.dir)
		if err != nil || free >= floor || !a.evictLargest(free, floor) {
			return
		}
		select {
		case <-a.life.Done():
		case <-time.After(diskSettle):
		}
	})
}

// every calls look once a period until the agent stops.
func (a *Agent) every(period time.Duration, look func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-a.life.Done():
			return
		case <-tick.C:
			look()
		}
	}
}

// diskRoom is how many bytes the disk under dir has left, and how many it should have.
func diskRoom(dir string) (free, floor uint64, err error) {
	free, size, err := diskSpace(dir)
	return free, min(size/20, maxDiskFloor), err
}

// diskSpace is how many bytes the disk under dir has left, and how many it has.
func diskSpace(dir string) (free, size uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}

// evictLargest evicts the Pod that holds most of the disk. It leaves Pods alone that hold next to nothing: then
// somebody else fills the disk.
func (a *Agent) evictLargest(free, floor uint64) bool {
	var largest *worker
	var wipes int
	most := floor / 4
	for _, w := range a.evictable() {
		before := w.wiped()
		if held := diskUse(w.dir, maxCounted) + w.deleted(maxCounted); held > most {
			largest, most, wipes = w, held, before
		}
	}
	if largest == nil {
		return false
	}
	largest.setEviction(fmt.Sprintf("the disk has %d MB left, below the %d MB that are kept free, and this Pod holds %d MB of it", free>>20, floor>>20, most>>20), wipes)
	return true
}

// evictable are the Pods that the API knows and that have not ended and are not about to.
func (a *Agent) evictable() []*worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*worker
	for _, w := range a.workers {
		w.mu.Lock()
		if w.latest != nil && w.latest.DeletionTimestamp == nil && w.eviction == "" && !terminal(w.latest) {
			all = append(all, w)
		}
		w.mu.Unlock()
	}
	return all
}
