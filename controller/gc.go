package controller

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Percentages for the garbage collector (GOGC). About 32 MB live: an idle platform lets garbage add half of that, so
// that it is small on a laptop; a busy one three times that, since collecting cost it a fifth of its processor time.
const (
	calmGC = 50
	busyGC = 300
	// busyCollections a second, for busySeconds, are a busy platform; a start is over before that. It collects a fifth
	// as often once it has room, so that one collection a second keeps it busy.
	busyCollections = 4
	busySeconds     = 3
)

// tuneGC adapts the collector to the load until ctx ends. GOGC in the environment wins.
func tuneGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(calmGC)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	var load gcLoad
	var last uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(sample)
		total := sample[0].Value.Uint64()
		switch was := load.busy; {
		case load.observe(total-last) == was:
		case load.busy:
			debug.SetGCPercent(busyGC)
		default:
			debug.SetGCPercent(calmGC)
			debug.FreeOSMemory()
		}
		last = total
	}
}

// gcLoad tells a busy platform from a calm one.
type gcLoad struct {
	busy bool
	high int // seconds of many collections
}

// observe takes in the collections of one second.
func (l *gcLoad) observe(collections uint64) bool {
	if collections >= busyCollections {
		l.high++
	} else {
		l.high = 0
	}
	l.busy = l.high >= busySeconds || l.busy && collections >= 1
	return l.busy
}
