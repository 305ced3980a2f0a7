package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"navix.sh/agentbox/controller/embedded/runtime"
)

// machine makes directories that look like the cgroup file systems of a machine. The paths in mountinfo are relative
// to them.
func machine(t *testing.T, dirs ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDetectV1(t *testing.T) {
	root := machine(t, "memory/job", "cpu,cpuacct", "pids", "unified")
	mountinfo := fmt.Sprintf(`1 0 0:1 / /proc rw - proc proc rw
2 0 0:2 / %[1]s/memory rw,relatime - cgroup cgroup rw,memory
3 0 0:3 / %[1]s/cpu,cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct
4 0 0:4 / %[1]s/pids rw,relatime - cgroup cgroup rw,pids
5 0 0:5 / %[1]s/unified rw,relatime - cgroup2 cgroup2 rw
`, root)
	put(t, filepath.Join(root, "unified/cgroup.controllers"), "hugetlb\n")
	found := detect(mountinfo, "4:memory:/job\n3:cpu,cpuacct:/absent\n1:pids:/\n0::/\n")
	if len(found) != 3 {
		t.Fatalf("found %+v", found)
	}
	for i, want := range []hierarchy{
		{controllers: []string{Memory}, parent: root + "/memory/job"},
		{controllers: []string{CPU}, parent: root + "/cpu,cpuacct"},
		{controllers: []string{PIDs}, parent: root + "/pids"},
	} {
		if found[i].parent != want.parent || !slices.Equal(found[i].controllers, want.controllers) || found[i].v2 {
			t.Errorf("hierarchy %d is %+v, want %+v", i, found[i], want)
		}
	}
	m := &Manager{name: "x", hierarchies: found[:2]}
	if missing := m.Missing(); !slices.Equal(missing, []string{PIDs}) {
		t.Errorf("missing %v", missing)
	}
}

func TestDetectV2(t *testing.T) {
	root := machine(t, "v2/user.slice/session")
	put(t, filepath.Join(root, "v2/cgroup.controllers"), "cpuset cpu io memory pids\n")
	put(t, filepath.Join(root, "v2/cgroup.subtree_control"), "")
	mountinfo := fmt.Sprintf("5 0 0:5 / %s/v2 rw,relatime - cgroup2 cgroup2 rw\n", root)
	found := detect(mountinfo, "0::/user.slice/session\n")
	if len(found) != 1 || !found[0].v2 || found[0].parent != root+"/v2" || !slices.Equal(found[0].controllers, []string{CPU, Memory, PIDs}) {
		t.Fatalf("found %+v", found)
	}
}

func TestSettings(t *testing.T) {
	limits := runtime.Limits{MemoryBytes: 1 << 20, CPUMillis: 1500, CPUShares: 1024, Processes: 64}
	all := []string{Memory, CPU, PIDs}
	for _, test := range []struct {
		v2     bool
		limits runtime.Limits
		want   string
	}{
		{false, limits, "memory.limit_in_bytes=1048576 memory.memsw.limit_in_bytes=1048576 cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000 cpu.shares=1024 pids.max=64"},
		{true, limits, "memory.max=1048576 memory.swap.max=0 memory.oom.group=0 cpu.max=150000 100000 cpu.weight=39 pids.max=64"},
		{false, runtime.Limits{CPUMillis: 1, CPUShares: 1}, "cpu.cfs_period_us=100000 cpu.cfs_quota_us=1000 cpu.shares=2"},
		{true, runtime.Limits{}, ""},
	} {
		got := ""
		for _, s := range settings(hierarchy{v2: test.v2, controllers: all}, test.limits) {
			if got != "" {
				got += " "
			}
			got += s.file + "=" + s.value
		}
		if got != test.want {
			t.Errorf("v2 %v, %+v: %q, want %q", test.v2, test.limits, got, test.want)
		}
	}
}

// TestRealGroups makes groups on this machine, puts a process into one, and removes them with it.
func TestRealGroups(t *testing.T) {
	m, err := New(fmt.Sprintf("agentbox-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.hierarchies) == 0 {
		t.Skip("this machine lets this user make no control groups")
	}
	t.Cleanup(m.Close)
	g, err := m.Create("pod/container", runtime.Limits{MemoryBytes: 64 << 20, CPUMillis: 500, Processes: 10})
	if err != nil {
		t.Fatal(err)
	}
	// The limits are those of the last call, also where somebody has removed the group meanwhile.
	if i := slices.IndexFunc(m.hierarchies, func(h hierarchy) bool { return slices.Contains(h.controllers, PIDs) }); i >= 0 {
		file := filepath.Join(g.dirs[i], "pids.max")
		for _, want := range []int64{11, 11, 12} {
			if _, err := m.Create("pod/container", runtime.Limits{Processes: want}); err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(data)) != strconv.FormatInt(want, 10) {
				t.Errorf("%s is %q, want %d, %v", file, data, want, err)
			}
			if err := os.Remove(g.dirs[i]); err != nil {
				t.Fatal(err)
			}
		}
		if g, err = m.Create("pod/container", runtime.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- sleep.Wait() }()
	if err := g.Add(sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pods := m.Pods(); !slices.Equal(pods, []string{"pod"}) {
		t.Errorf("Pods are %v", pods)
	}
	if err := m.RemoveAll(t.Context(), "pod"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the process in the group has ended by itself")
	}
	if pods := m.Pods(); len(pods) > 0 {
		t.Errorf("groups are left: %v", pods)
	}
	if err := m.RemoveAll(t.Context(), "absent"); err != nil {
		t.Errorf("removing nothing: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("5 0 0:5 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n", "0::/\n4:memory:/a\n")
	f.Fuzz(func(_ *testing.T, mountinfo, self string) {
		parseMounts(mountinfo)
		parseSelf(self)
	})
}

func TestMounts(t *testing.T) {
	v1 := []hierarchy{{controllers: []string{Memory}, parent: "/m"}, {controllers: []string{CPU, PIDs}, parent: "/c"}}
	v2 := []hierarchy{{controllers: controllers, parent: "/v2", v2: true}}
	for _, test := range []struct {
		name        string
		hierarchies []hierarchy
		want        string
	}{
		{"none", nil, ""},
		{"v1 with processes alone", []hierarchy{{controllers: []string{PIDs}, parent: "/p"}}, ""},
		{"v1", v1, "tmpfs  /sys/fs/cgroup; bind /m/n/pod/c /sys/fs/cgroup/memory; bind /c/n/pod/c /sys/fs/cgroup/cpu; "},
		{"v2", v2, "bind /v2/n/pod/c /sys/fs/cgroup; "},
		{"both", slices.Concat(v1[:1], v2), "tmpfs  /sys/fs/cgroup; bind /m/n/pod/c /sys/fs/cgroup/memory; "},
	} {
		got := ""
		for _, m := range (&Manager{name: "n", hierarchies: test.hierarchies}).Mounts("pod/c") {
			got += fmt.Sprintf("%s %s %s; ", m.Kind, m.Source, m.Target)
			if !m.ReadOnly || m.Exec || m.Device {
				t.Errorf("%s: %+v allows too much", test.name, m)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
