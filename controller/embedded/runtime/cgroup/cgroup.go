package cgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// Manager makes the groups of one agent. All its groups lie under one name, by which leftovers are found.
type Manager struct {
	name        string
	hierarchies []hierarchy

	mu    sync.Mutex
	known map[string]runtime.Limits // of the groups that this process has made, by path
}

// New finds out what this machine offers. name must be the same for every run on the same data directory.
func New(name string) (*Manager, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &Manager{name: name, hierarchies: detect(string(mountinfo), string(self)), known: map[string]runtime.Limits{}}, nil
}

// Has reports whether a controller can be used.
func (m *Manager) Has(controller string) bool {
	return slices.ContainsFunc(m.hierarchies, func(h hierarchy) bool { return slices.Contains(h.controllers, controller) })
}

// Missing lists the controllers that cannot be used here.
func (m *Manager) Missing() []string {
	var missing []string
	for _, c := range controllers {
		if !m.Has(c) {
			missing = append(missing, c)
		}
	}
	return missing
}

// Group is the group of one container, in every hierarchy.
type Group struct {
	dirs     []string
	memory   string // the directory with the memory controller, or empty
	memoryV2 bool
}

// Create makes the group path ("<pod>/<container>") or takes the one that exists, and sets its limits.
func (m *Manager) Create(path string, l runtime.Limits) (*Group, error) {
	if g := m.unchanged(path, l); g != nil {
		return g, nil // as at every restart of a container
	}
	g := &Group{}
	for _, h := range m.hierarchies {
		dir := h.parent
		for _, part := range append([]string{m.name}, strings.Split(path, "/")...) {
			if h.v2 && dir != h.parent {
				for _, c := range h.controllers {
					if err := enable(dir, c); err != nil {
						return nil, fmt.Errorf("use the %s controller in %s: %w", c, dir, err)
					}
				}
			}
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return nil, fmt.Errorf("make the control group %s: %w", dir, err)
			}
		}
		g.dirs = append(g.dirs, dir)
		if slices.Contains(h.controllers, Memory) {
			g.memory, g.memoryV2 = dir, h.v2
		}
		for _, s := range settings(h, l) {
			if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0); err != nil {
				if s.optional {
					continue
				}
				return nil, fmt.Errorf("limit %s to %s: %w", s.file, s.value, err)
			}
		}
	}
	m.mu.Lock()
	m.known[path] = l
	m.mu.Unlock()
	return g, nil
}

// unchanged returns the group when it exists and has these limits, and otherwise nil.
func (m *Manager) unchanged(path string, l runtime.Limits) *Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	has, ok := m.known[path]
	if !ok {
		return nil
	}
	delete(m.known, path)
	g := m.Find(path)
	if has != l || slices.ContainsFunc(g.dirs, func(dir string) bool { _, err := os.Stat(dir); return err != nil }) {
		return nil
	}
	m.known[path] = l
	return g
}

// Find returns a group that exists.
func (m *Manager) Find(path string) *Group {
	g := &Group{}
	for _, h := range m.hierarchies {
		dir := filepath.Join(h.parent, m.name, path)
		g.dirs = append(g.dirs, dir)
		if slices.Contains(h.controllers, Memory) {
			g.memory, g.memoryV2 = dir, h.v2
		}
	}
	return g
}

// mountDir is where programs look for the group they are in.
const mountDir = "/sys/fs/cgroup"

// Mounts shows a container its group read-only, and no other group. Where the controllers are shared out between v1 and
// v2, it shows those of v1: there is one place for either.
func (m *Manager) Mounts(path string) []launch.Mount {
	bind := func(h hierarchy, target string) launch.Mount {
		return launch.Mount{
			Kind: launch.Bind, Source: filepath.Join(h.parent, m.name, path), Target: target, ReadOnly: true, Optional: true,
		}
	}
	var v1, v2 []launch.Mount
	var v1Dirs []string
	for _, h := range m.hierarchies {
		if h.v2 {
			v2 = append(v2, bind(h, mountDir)) // there is one at most
			continue
		}
		for _, c := range h.controllers {
			if c == PIDs {
				continue // nothing reads it, and every mount costs time at a start
			}
			v1Dirs = append(v1Dirs, c)
			v1 = append(v1, bind(h, filepath.Join(mountDir, c)))
		}
	}
	if len(v1) == 0 {
		return v2
	}
	parent := launch.Mount{
		Kind: launch.Tmpfs, Target: mountDir, ReadOnly: true, Dirs: v1Dirs,
		Options: map[string]string{"mode": "755", "size": "4096"},
	}
	return append([]launch.Mount{parent}, v1...)
}

type setting struct {
	file, value string
	optional    bool
}

const cpuPeriod = 100_000 // microseconds, the kernel's default

// settings are the files that express limits in a hierarchy.
func settings(h hierarchy, l runtime.Limits) []setting {
	var s []setting
	add := func(file, value string) { s = append(s, setting{file: file, value: value}) }
	quota := max(l.CPUMillis*cpuPeriod/1000, 1000)
	for _, c := range h.controllers {
		switch {
		case c == Memory && l.MemoryBytes > 0 && h.v2:
			add("memory.max", strconv.FormatInt(l.MemoryBytes, 10))
			s = append(s, setting{"memory.swap.max", "0", true}, setting{"memory.oom.group", "0", true})
		case c == Memory && l.MemoryBytes > 0:
			add("memory.limit_in_bytes", strconv.FormatInt(l.MemoryBytes, 10))
			s = append(s, setting{"memory.memsw.limit_in_bytes", strconv.FormatInt(l.MemoryBytes, 10), true})
		case c == CPU && h.v2:
			if l.CPUMillis > 0 {
				add("cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod))
			}
			if l.CPUShares > 0 {
				// The mapping of shares (2..262144) to weight (1..10000) that Kubernetes documents.
				add("cpu.weight", strconv.FormatInt(1+((max(l.CPUShares, 2)-2)*9999)/262142, 10))
			}
		case c == CPU:
			if l.CPUMillis > 0 {
				add("cpu.cfs_period_us", strconv.Itoa(cpuPeriod))
				add("cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
			}
			if l.CPUShares > 0 {
				add("cpu.shares", strconv.FormatInt(max(l.CPUShares, 2), 10))
			}
		case c == PIDs && l.Processes > 0:
			add("pids.max", strconv.FormatInt(l.Processes, 10))
		}
	}
	return s
}

// Open returns the files that a process writes its own pid to in order to enter the group.
func (g *Group) Open() ([]*os.File, error) {
	var files []*os.File
	for _, dir := range g.dirs {
		f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Add moves a process into the group.
func (g *Group) Add(pid int) error {
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move process %d into %s: %w", pid, dir, err)
		}
	}
	return nil
}

// OOMKills counts the processes of the group that the kernel killed for want of memory since the group exists.
func (g *Group) OOMKills() int {
	if g.memory == "" {
		return 0
	}
	file := "memory.oom_control"
	if g.memoryV2 {
		file = "memory.events"
	}
	data, err := os.ReadFile(filepath.Join(g.memory, file))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(data), "\n") {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// Pods lists the first path element of all groups that exist.
func (m *Manager) Pods() []string {
	seen := map[string]bool{}
	for _, h := range m.hierarchies {
		entries, _ := os.ReadDir(filepath.Join(h.parent, m.name))
		for _, e := range entries {
			if e.IsDir() {
				seen[e.Name()] = true
			}
		}
	}
	var pods []string
	for p := range seen {
		pods = append(pods, p)
	}
	return pods
}

// RemoveAll kills what is left in a Pod's groups and removes them.
func (m *Manager) RemoveAll(ctx context.Context, pod string) error {
	return m.remove(ctx, pod)
}

// Close removes the manager's own group, when no Pod has one any more.
func (m *Manager) Close() {
	for _, h := range m.hierarchies {
		_ = os.Remove(filepath.Join(h.parent, m.name))
	}
}

func (m *Manager) remove(ctx context.Context, pod string) error {
	m.mu.Lock()
	maps.DeleteFunc(m.known, func(path string, _ runtime.Limits) bool { return strings.HasPrefix(path, pod+"/") })
	m.mu.Unlock()
	var errs []error
	for _, h := range m.hierarchies {
		dir := filepath.Join(h.parent, m.name, pod)
		children, _ := os.ReadDir(dir)
		for _, c := range children {
			if c.IsDir() {
				errs = append(errs, removeGroup(ctx, filepath.Join(dir, c.Name())))
			}
		}
		errs = append(errs, removeGroup(ctx, dir))
	}
	return errors.Join(errs...)
}

// removeGroup deletes one group, killing what is in it. A killed process stays in its group until it is reaped, so
// the removal is tried again for a while.
func removeGroup(ctx context.Context, dir string) error {
	wait := time.Millisecond
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("remove the control group %s: %w", dir, err)
		}
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, line := range strings.Fields(string(procs)) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is as good
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove the control group %s: %w", dir, err)
		case <-time.After(wait):
			wait = min(wait*2, 100*time.Millisecond)
		}
	}
}
