package node

import (
	"maps"
	"time"

	"navix.sh/agentbox/controller/embedded/image"
)

const (
	// imagesEvery is how often the disk is looked at for whether unused images have to go.
	imagesEvery = 10 * time.Second
	// Images go when the disk is fuller than imagesHigh percent, until it is only imagesLow percent full, as with a
	// kubelet. On a large disk maxImageRoom bytes left are enough, and a third more to end with.
	imagesHigh, imagesLow = 85, 80
	maxImageRoom          = 16 << 30
)

// collectImages removes unused images while the disk is too full. It ends with the agent.
func (a *Agent) collectImages() {
	a.every(imagesEvery, func() {
		if a.imageRoom(imagesHigh, maxImageRoom) {
			return
		}
		removed, err := a.images.Collect(func() bool {
			return a.life.Err() != nil || a.imageRoom(imagesLow, maxImageRoom+maxImageRoom/3)
		}, a.imagesInUse)
		if len(removed) > 0 {
			a.log.Info("unused images are removed to make room", "images", removed)
		}
		if err != nil {
			a.log.Error("unused images are not removed", "error", err)
		}
	})
}

// imageRoom reports whether the disk is at most that full, or has so many bytes left.
func (a *Agent) imageRoom(percent, enough uint64) bool {
	free, size, err := diskSpace(a.dir)
	return err != nil || free >= min(size/100*(100-percent), enough)
}

func (a *Agent) imagesInUse() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := map[string]bool{}
	for _, w := range a.workers {
		w.mu.Lock()
		maps.Copy(used, w.images)
		w.mu.Unlock()
	}
	return used
}

// hold keeps an image that is about to be used, until the next save settles which are; it reports whether the image is
// still there.
func (w *worker) hold(img *image.Image) bool {
	w.mu.Lock()
	next := maps.Clone(w.images)
	if next == nil {
		next = map[string]bool{}
	}
	next[img.ID] = true
	w.images = next
	w.mu.Unlock()
	return w.agent.images.Use(img)
}

// setImages settles which images must stay.
func (w *worker) setImages(used map[string]bool) {
	w.mu.Lock()
	before := w.images
	w.images = used
	w.mu.Unlock()
	for id := range before {
		if !used[id] {
			w.agent.images.Used(id)
		}
	}
}
