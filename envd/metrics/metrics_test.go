package metrics

import (
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
			"no cgroups",
			map[string]string{"proc/stat": "cpu  100 0 50 999 7 0 0 0 10 0\ncpu0 1 2 3\n", "proc/meminfo": meminfo},
			1500 * time.Millisecond, runtime.NumCPU(), memory{total: 1 << 20, used: 768 << 10, cache: 128 << 10},
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
