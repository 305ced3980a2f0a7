package metrics

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// memory is in bytes; used leaves the reclaimable cache out.
type memory struct{ total, used, cache uint64 }

// source knows the files that the sandbox's figures are read from. An empty directory means that the sandbox does not see
// the controller, and that the processes of /proc serve, which are its own.
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
				s.v1cpu = cmp.Or(
					within(filepath.Join(base, controller), parts[2], "cpuacct.usage"),
					within(filepath.Join(base, "cpu"), parts[2], "cpuacct.usage"), // of one hierarchy for both
				)
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
	return s.processCPUTime()
}

// processCPUTime adds up the sandbox's processes with the children that they have waited for, in ticks of 10 ms.
func (s source) processCPUTime() (time.Duration, error) {
	ticks, err := s.sumOfProcesses("stat", func(stat []byte) (uint64, error) {
		// utime, stime, cutime and cstime of proc(5), counted from behind the name, which can hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 15 {
			return 0, errTooShort
		}
		return sum(fields[11:15])
	})
	return time.Duration(ticks) * 10 * time.Millisecond, err
}

// processMemory adds up what the sandbox's processes have in memory besides files, as a cgroup's use without its cache.
func (s source) processMemory() (uint64, error) {
	pages, err := s.sumOfProcesses("statm", func(statm []byte) (uint64, error) {
		fields := bytes.Fields(statm)
		if len(fields) < 3 {
			return 0, errTooShort
		}
		resident, err1 := sum(fields[1:2])
		files, err2 := sum(fields[2:3])
		return resident - min(files, resident), errors.Join(err1, err2)
	})
	return pages * uint64(os.Getpagesize()), err
}

var errTooShort = errors.New("fewer fields than proc(5) says")

// sumOfProcesses adds up what read finds in a file of each process.
func (s source) sumOfProcesses(file string, read func([]byte) (uint64, error)) (uint64, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, "proc"))
	if err != nil {
		return 0, err
	}
	var total uint64
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		path := filepath.Join(s.root, "proc", e.Name(), file)
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		n, err := read(text)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		total += n
	}
	return total, nil
}

func sum(fields [][]byte) (uint64, error) {
	var total uint64
	for _, field := range fields {
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
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
		current, err = s.processMemory()
		current = min(current, machine) // processes share pages
	}
	if err != nil {
		return memory{}, err
	}
	if limit == 0 || limit > machine {
		limit = machine
	}
	cache = min(cache, current)
	return memory{total: limit, used: current - cache, cache: cache}, nil
}

// machineMemory is the size of the machine's memory.
func (s source) machineMemory() (uint64, error) {
	path := filepath.Join(s.root, "proc/meminfo")
	text, err := keyedText(path, "MemTotal:")
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseUint(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return kib << 10, nil
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

// keyed reads the number of one line of a file of "key value" lines.
func keyed(path, key string) (uint64, error) {
	text, err := keyedText(path, key)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

func keyedText(path, key string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == key {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", path, key)
}
