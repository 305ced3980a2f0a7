// Package metrics measures a sandbox's use of CPU, memory and disk: by its cgroup (v1 or v2), and what no cgroup tells, by
// its processes. What it can use is its limit, or the whole machine where it sees none. The machine's load is never told.
package metrics

import (
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Sample is the body of GET /metrics. Memory and disk are bytes unless their name says MiB.
type Sample struct {
	Timestamp   int64   `json:"ts"` // unix seconds
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"` // of one CPU × cpu_count, so at most 100
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`  // without the cache
	MemCache    uint64  `json:"mem_cache"` // 0 where no cgroup tells
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}

// Collector remembers the last reading, because CPU use is a difference. It is safe for concurrent use.
type Collector struct {
	source source

	mu   sync.Mutex
	last reading
	pct  float64
}

// reading is CPU time at a moment.
type reading struct {
	at  time.Time
	cpu time.Duration
}

// minInterval keeps clients that poll together from dividing by next to nothing.
const minInterval = 100 * time.Millisecond

// NewCollector starts measuring now.
func NewCollector() *Collector {
	c := &Collector{source: findSource("/")}
	if cpu, err := c.source.cpuTime(); err == nil {
		c.last = reading{at: time.Now(), cpu: cpu}
	}
	return c
}

// Sample measures. CPU use is the mean since the sample before.
func (c *Collector) Sample() (Sample, error) {
	count := c.source.cpuCount()
	pct, err := c.cpuUse(count)
	if err != nil {
		return Sample{}, err
	}
	memory, err := c.source.memory()
	if err != nil {
		return Sample{}, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs("/", &disk); err != nil {
		return Sample{}, err
	}
	block := uint64(disk.Bsize)
	return Sample{
		Timestamp:   time.Now().Unix(),
		CPUCount:    count,
		CPUUsedPct:  pct,
		MemTotalMiB: memory.total >> 20,
		MemUsedMiB:  memory.used >> 20,
		MemTotal:    memory.total,
		MemUsed:     memory.used,
		MemCache:    memory.cache,
		DiskUsed:    (disk.Blocks - disk.Bfree) * block,
		DiskTotal:   disk.Blocks * block,
	}, nil
}

func (c *Collector) cpuUse(count int) (float64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cpu, err := c.source.cpuTime()
	if err != nil {
		return 0, err
	}
	now := time.Now()
	elapsed := now.Sub(c.last.at)
	if elapsed < minInterval {
		return c.pct, nil
	}
	pct := 100 * float64(cpu-c.last.cpu) / (float64(elapsed) * float64(count))
	c.pct = math.Round(min(max(pct, 0), 100)*100) / 100
	c.last = reading{at: now, cpu: cpu}
	return c.pct, nil
}

func machineCPUs() int { return runtime.NumCPU() }
