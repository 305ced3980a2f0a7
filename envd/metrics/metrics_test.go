package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// tree writes files below a root that stands for the machine's.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const meminfo = "MemTotal:       1024 kB\nMemFree:         100 kB\nMemAvailable:    256 kB\nCached:          128 kB\n"

// stat is a process's, with user and system time of itself and of the children it has waited for.
func stat(ticks ...int) string {
	return fmt.Sprintf("1 (a) b (c) S 0 1 1 0 -1 4194560 1 2 3 4 %d %d %d %d 20 0 1 0 5 6 7\n", ticks[0], ticks[1], ticks[2], ticks[3])
}

func TestSources(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		cpu   time.Duration
		count int
		mem   memory
	}{
		{
			"cgroup v2 with limits",
			map[string]string{
				"proc/self/cgroup":                   "0::/pod/c\n",
				"proc/meminfo":                       meminfo,
				"sys/fs/cgroup/pod/c/cpu.stat":       "usage_usec 5000000\nuser_usec 1\n",
				"sys/fs/cgroup/pod/c/cpu.max":        "50000 100000\n",
				"sys/fs/cgroup/pod/c/memory.current": "8192\n",
				"sys/fs/cgroup/pod/c/memory.max":     "65536\n",
				"sys/fs/cgroup/pod/c/memory.stat":    "anon 1\nfile 2048\n",
			},
			5 * time.Second, 1, memory{total: 65536, used: 6144, cache: 2048},
		},
		{
			"cgroup v2 in a namespace, without limits",
			map[string]string{
				"proc/self/cgroup":             "0::/\n",
				"proc/meminfo":                 meminfo,
				"sys/fs/cgroup/cpu.stat":       "usage_usec 1\n",
				"sys/fs/cgroup/cpu.max":        "max 100000\n",
				"sys/fs/cgroup/memory.current": "8192\n",
				"sys/fs/cgroup/memory.max":     "max\n",
				"sys/fs/cgroup/memory.stat":    "file 0\n",
			},
			time.Microsecond, runtime.NumCPU(), memory{total: 1 << 20, used: 8192},
		},
		{
			"cgroup v1",
			map[string]string{
				"proc/self/cgroup":                             "5:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/\n0::/\n",
				"proc/meminfo":                                 meminfo,
				"sys/fs/cgroup/cpuacct/x/cpuacct.usage":        "3000000000\n",
				"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us":         "-1\n",
				"sys/fs/cgroup/cpu/x/cpu.cfs_period_us":        "100000\n",
				"sys/fs/cgroup/memory/x/memory.usage_in_bytes": "4096\n",
				"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
				"sys/fs/cgroup/memory/x/memory.stat":           "cache 1\ntotal_cache 1024\n",
			},
			3 * time.Second, runtime.NumCPU(), memory{total: 1 << 20, used: 3072, cache: 1024},
		},
		{
			"cgroup v1 as the node agent shows it, with limits and without cpuacct",
			map[string]string{
				"proc/self/cgroup":                           "4:memory:/\n2:cpuacct:/\n1:cpu:/\n0::/\n",
				"proc/meminfo":                               meminfo,
				"proc/1/stat":                                stat(1, 2, 3, 4),
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "50000\n",
				"sys/fs/cgroup/cpu/cpu.cfs_period_us":        "100000\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes": "4096\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "8192\n",
				"sys/fs/cgroup/memory/memory.stat":           "total_cache 1024\n",
			},
			100 * time.Millisecond, 1, memory{total: 8192, used: 3072, cache: 1024},
		},
		{
			"cgroup v1 with cpuacct in the hierarchy of cpu",
			map[string]string{
				"proc/self/cgroup":                    "3:cpu,cpuacct:/\n",
				"proc/meminfo":                        meminfo,
				"sys/fs/cgroup/cpu/cpuacct.usage":     "3000000000\n",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  "1\n",
				"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			},
			3 * time.Second, 1, memory{total: 1 << 20},
		},
		{
			"no cgroups: the sandbox's processes, and not the machine's load",
			map[string]string{
				"proc/self/cgroup": "4:memory:/\n2:cpuacct:/\n1:cpu:/\n0::/\n",
				"proc/stat":        "cpu  100 0 50 999 7 0 0 0 10 0\ncpu0 1 2 3\n",
				"proc/meminfo":     meminfo,
				"proc/1/stat":      stat(100, 20, 3, 0),
				"proc/1/statm":     "900 30 20 1 0 1 0\n",
				"proc/27/stat":     stat(0, 7, 0, 20),
				"proc/27/statm":    "900 25 20 1 0 1 0\n",
				"proc/ended/stat":  "",
			},
			1500 * time.Millisecond, runtime.NumCPU(), memory{total: 1 << 20, used: 15 * uint64(os.Getpagesize())},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := findSource(tree(t, test.files))
			if cpu, err := s.cpuTime(); err != nil || cpu != test.cpu {
				t.Errorf("CPU time %v %v, want %v", cpu, err, test.cpu)
			}
			if got := s.cpuCount(); got != test.count {
				t.Errorf("%d CPUs, want %d", got, test.count)
			}
			if got, err := s.memory(); err != nil || got != test.mem {
				t.Errorf("memory %+v %v, want %+v", got, err, test.mem)
			}
		})
	}
}

func TestSample(t *testing.T) {
	got, err := NewCollector().Sample()
	if err != nil {
		t.Fatal(err)
	}
	if got.CPUCount < 1 || got.CPUUsedPct < 0 || got.CPUUsedPct > 100 || got.MemTotal == 0 || got.MemUsed > got.MemTotal ||
		got.DiskTotal == 0 || got.DiskUsed > got.DiskTotal || got.Timestamp == 0 {
		t.Errorf("%+v", got)
	}
}

func TestCPUUseIsADifference(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "usage_usec 1000000\n"})
	c := &Collector{source: findSource(root)}
	c.last = reading{at: time.Now().Add(-2 * time.Second)}
	if pct, err := c.cpuUse(2); err != nil || pct < 20 || pct > 25.1 {
		t.Errorf("one CPU second in two seconds on two CPUs is %v%% %v, want 25", pct, err)
	}
	if pct, err := c.cpuUse(2); err != nil || pct < 20 {
		t.Errorf("a second sample at once: %v %v", pct, err)
	}
}
