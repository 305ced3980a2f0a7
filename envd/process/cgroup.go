package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// group is the cgroup of one command. Where envd may make cgroups, a kill through them reaches every process of the
// command at once, daemons included, which no walk over parents can promise.
type group struct{ dir string }

// groups makes them below envd's own cgroup. The zero value makes none.
type groups struct {
	parent string
	next   atomic.Uint64
}

// findGroups looks for a cgroup v2 hierarchy that envd may write, pure or beside v1 controllers.
func findGroups() *groups {
	g := &groups{}
	own, ok := ownGroup()
	if !ok {
		return g
	}
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		dir := filepath.Join(mount, own)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			continue
		}
		probe := filepath.Join(dir, "envd-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(probe, 0o755) != nil {
			continue
		}
		_, err := os.Stat(filepath.Join(probe, "cgroup.kill")) // absent before Linux 5.14 and in v1
		_ = os.Remove(probe)
		if err == nil {
			g.parent = dir
			removeAbandoned(dir)
			return g
		}
	}
	return g
}

// removeAbandoned removes what an envd that was killed left behind.
func removeAbandoned(parent string) {
	found, _ := filepath.Glob(filepath.Join(parent, "envd-*-*"))
	for _, dir := range found {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), "envd-"), "-")
		if _, err := os.Stat("/proc/" + owner); os.IsNotExist(err) {
			_ = os.Remove(dir) // fails, as it should, while something still runs there
		}
	}
}

// ownGroup reads the v2 line ("0::/path") of envd's membership.
func ownGroup() (string, bool) {
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(membership)) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			return path, true
		}
	}
	return "", false
}

// enter makes a group and has the child of attr born in it. It returns nil where there are no groups; opened is the
// directory to close after the start.
func (g *groups) enter(attr *syscall.ProcAttr) (made *group, opened *os.File) {
	if g.parent == "" {
		return nil, nil
	}
	dir := filepath.Join(g.parent, fmt.Sprintf("envd-%d-%d", os.Getpid(), g.next.Add(1)))
	if os.Mkdir(dir, 0o755) != nil {
		return nil, nil
	}
	opened, err := os.Open(dir)
	if err != nil {
		_ = os.Remove(dir)
		return nil, nil
	}
	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(opened.Fd())
	return &group{dir: dir}, opened
}

func (g *group) kill() {
	_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
}

// remove succeeds once nothing of the command is left.
func (g *group) remove() bool {
	err := os.Remove(g.dir)
	return err == nil || os.IsNotExist(err)
}
