package runtimetest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPU measures what a benchmark costs, which a busy machine does not blur as it blurs the time on the clock.
type CPU struct {
	b    *testing.B
	pids []int
	own  time.Duration
	pods time.Duration
}

// MeasureCPU begins to measure this process, which is the agent, and Pods by their first processes.
func MeasureCPU(b *testing.B, pids ...int) *CPU {
	b.Helper()
	c := &CPU{b: b, pids: pids}
	c.own, c.pods = c.used()
	return c
}

// Report gives the milliseconds of processor time for each operation: of the agent, and of the Pods' processes that have ended
// and their first ones.
func (c *CPU) Report() {
	c.b.Helper()
	own, pods := c.used()
	each := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(c.b.N) }
	c.b.ReportMetric(each(own-c.own), "agent-cpu-ms/op")
	c.b.ReportMetric(each(pods-c.pods), "pod-cpu-ms/op")
}

func (c *CPU) used() (own, pods time.Duration) {
	c.b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		c.b.Fatal(err)
	}
	own = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	for _, pid := range c.pids {
		d, err := usedByPod(pid)
		if err != nil {
			c.b.Fatal(err)
		}
		pods += d
	}
	return own, pods
}

// usedByPod adds up fields 14 to 17 of proc(5)'s stat, user and system time of a process and of the children it has waited for, in
// hundredths of a second.
func usedByPod(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const first, last = 14 - 3, 17 - 3 // the slice begins at field 3, behind the name
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= last {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields behind the name, fewer than proc(5) says", pid, len(fields))
	}
	var ticks int
	for _, f := range fields[first : last+1] {
		n, err := strconv.Atoi(string(f))
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
