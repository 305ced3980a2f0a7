package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// memory is in bytes; used leaves the reclaimable cache out.
type memory struct{ total, used, cache uint64 }

// source knows the files that the sandbox's figures are read from. An empty directory means that the controller is not
// there, and that the machine's figures of /proc serve.
type source struct {
	root              string // "/" but in tests
	unified           string // cgroup v2
	v1cpu, v1mem, v1q string // cgroup v1: cpuacct, memory, cpu
}

// findSource looks up envd's own cgroups.
func findSource(root string) source {
	s := source{root: root}
	membership, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return s
	}
	base := filepath.Join(root, "sys/fs/cgroup")
	for line := range strings.Lines(string(membership)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			switch controller {
			case "":
				s.unified = within(base, parts[2], "cpu.stat")
			case "cpuacct":
				s.v1cpu = within(filepath.Join(base, controller), parts[2], "cpuacct.usage")
			case "memory":
				s.v1mem = within(filepath.Join(base, controller), parts[2], "memory.usage_in_bytes")
			case "cpu":
				s.v1q = within(filepath.Join(base, controller), parts[2], "cpu.cfs_quota_us")
			}
		}
	}
	return s
}

// within finds the directory that has file: the membership's path, or the mount itself, which is what a container
// without a cgroup namespace sees of its own group.
func within(mount, path, file string) string {
	for _, dir := range []string{filepath.Join(mount, path), mount} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return dir
		}
	}
	return ""
}

func (s source) cpuTime() (time.Duration, error) {
	if s.unified != "" {
		usec, err := keyed(filepath.Join(s.unified, "cpu.stat"), "usage_usec")
		return time.Duration(usec) * time.Microsecond, err
	}
	if s.v1cpu != "" {
		nanos, err := number(filepath.Join(s.v1cpu, "cpuacct.usage"))
		return time.Duration(nanos), err
	}
	return s.machineCPUTime()
}

// machineCPUTime sums what is not idle of the first line of /proc/stat, in ticks of 10 ms.
func (s source) machineCPUTime() (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join(s.root, "proc/stat"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat does not begin with the sum over all CPUs")
	}
	var busy uint64
	for i, field := range fields[1:min(len(fields), 9)] { // guest time is part of user time
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 { // idle, iowait
			busy += ticks
		}
	}
	return time.Duration(busy) * 10 * time.Millisecond, nil
}

// cpuCount rounds a quota up to whole CPUs.
func (s source) cpuCount() int {
	var quota, period float64
	switch {
	case s.unified != "":
		text, _ := os.ReadFile(filepath.Join(s.unified, "cpu.max"))
		fields := strings.Fields(string(text))
		if len(fields) == 2 && fields[0] != "max" {
			quota, _ = strconv.ParseFloat(fields[0], 64)
			period, _ = strconv.ParseFloat(fields[1], 64)
		}
	case s.v1q != "":
		q, err1 := number(filepath.Join(s.v1q, "cpu.cfs_quota_us"))
		p, err2 := number(filepath.Join(s.v1q, "cpu.cfs_period_us"))
		if err1 == nil && err2 == nil { // without a quota the file holds -1, which is no number
			quota, period = float64(q), float64(p)
		}
	}
	if quota <= 0 || period <= 0 {
		return machineCPUs()
	}
	return max(1, min(int(math.Ceil(quota/period)), machineCPUs()))
}

func (s source) memory() (memory, error) {
	machine, err := s.machineMemory()
	if err != nil {
		return memory{}, err
	}
	var current, limit, cache uint64
	switch {
	case s.unified != "" && exists(filepath.Join(s.unified, "memory.current")):
		current, err = number(filepath.Join(s.unified, "memory.current"))
		limit, _ = number(filepath.Join(s.unified, "memory.max")) // "max" is no number and no limit
		cache, _ = keyed(filepath.Join(s.unified, "memory.stat"), "file")
	case s.v1mem != "":
		current, err = number(filepath.Join(s.v1mem, "memory.usage_in_bytes"))
		limit, _ = number(filepath.Join(s.v1mem, "memory.limit_in_bytes"))
		cache, _ = keyed(filepath.Join(s.v1mem, "memory.stat"), "total_cache")
	default:
		return machine, nil
	}
	if err != nil {
		return memory{}, err
	}
	if limit == 0 || limit > machine.total {
		limit = machine.total
	}
	cache = min(cache, current)
	return memory{total: limit, used: current - cache, cache: cache}, nil
}

func (s source) machineMemory() (memory, error) {
	info, err := os.ReadFile(filepath.Join(s.root, "proc/meminfo"))
	if err != nil {
		return memory{}, err
	}
	values := map[string]uint64{}
	for line := range strings.Lines(string(info)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); len(fields) > 0 {
			kib, _ := strconv.ParseUint(fields[0], 10, 64)
			values[name] = kib << 10
		}
	}
	total := values["MemTotal"]
	return memory{total: total, used: total - min(values["MemAvailable"], total), cache: values["Cached"]}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func number(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
}

// keyed reads one line of a file of "key value" lines.
func keyed(path, key string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == key {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}
