package node

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a Pod writes is not limited by itself, and the platform's own store lives on the same disk. So before the disk
// is full the Pod that holds most of it goes, as a kubelet evicts under disk pressure.
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
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.life.Done():
			return
		case <-tick.C:
		}
		free, floor, err := diskRoom(a.dir)
		if err != nil || free >= floor {
			continue
		}
		if !a.evictLargest(a.life, free, floor) {
			continue
		}
		select {
		case <-a.life.Done():
			return
		case <-time.After(diskSettle):
		}
	}
}

// diskRoom is how many bytes the disk under dir has left, and how many it should have.
func diskRoom(dir string) (free, floor uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	size := uint64(s.Bsize)
	return s.Bavail * size, min(s.Blocks*size/20, maxDiskFloor), nil
}

// evictLargest deletes the Pod that holds most of the disk. It leaves Pods alone that hold next to nothing: then
// somebody else fills the disk.
func (a *Agent) evictLargest(ctx context.Context, free, floor uint64) bool {
	var largest *corev1.Pod
	most := floor / 4
	a.mu.Lock()
	workers := make([]*worker, 0, len(a.workers))
	for _, w := range a.workers {
		workers = append(workers, w)
	}
	a.mu.Unlock()
	for _, w := range workers {
		w.mu.Lock()
		pod := w.latest
		w.mu.Unlock()
		if pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		if held := diskUse(w.dir); held > most {
			largest, most = pod, held
		}
	}
	if largest == nil {
		return false
	}
	message := fmt.Sprintf("the disk has %d MB left, below the %d MB that are kept free, and this Pod holds %d MB of it", free>>20, floor>>20, most>>20)
	a.log.Warn("a Pod is evicted", "namespace", largest.Namespace, "pod", largest.Name, "reason", message)
	a.events.Event(largest, corev1.EventTypeWarning, "Evicted", message)
	noGrace := int64(0) // it goes on writing until it is gone
	err := a.client.CoreV1().Pods(largest.Namespace).Delete(ctx, largest.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &noGrace, Preconditions: &metav1.Preconditions{UID: &largest.UID},
	})
	if err != nil && ctx.Err() == nil {
		a.log.Error("the Pod that fills the disk is not evicted", "pod", largest.Name, "error", err)
	}
	return err == nil
}

// diskUse is how many bytes of the disk the files below dir hold. What cannot be read is not counted.
func diskUse(dir string) uint64 {
	var bytes uint64
	counted := 0
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if counted++; counted > maxCounted {
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += uint64(st.Blocks) * 512
			}
		}
		return nil
	})
	return bytes
}
