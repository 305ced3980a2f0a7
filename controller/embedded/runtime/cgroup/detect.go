// Package cgroup limits containers on machines with cgroup v1, v2 and both (hybrid). What a machine does not offer is
// reported, never ignored.
package cgroup

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The controllers a sandbox is limited by.
const (
	Memory = "memory"
	CPU    = "cpu"
	PIDs   = "pids"
)

var controllers = []string{Memory, CPU, PIDs}

// hierarchy is one cgroup file system, with the directory in it that this process may make groups in.
type hierarchy struct {
	v2          bool
	controllers []string // of controllers above, those that this hierarchy serves
	parent      string
}

// mountPoint is a cgroup mount of /proc/self/mountinfo.
type mountPoint struct {
	path    string
	root    string
	v2      bool
	options []string
}

// parseMounts reads the cgroup mounts out of the text of /proc/self/mountinfo.
func parseMounts(mountinfo string) []mountPoint {
	var found []mountPoint
	scanner := bufio.NewScanner(strings.NewReader(mountinfo))
	for scanner.Scan() {
		left, right, ok := strings.Cut(scanner.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		switch r[0] {
		case "cgroup":
			found = append(found, mountPoint{path: unescape(l[4]), root: unescape(l[3]), options: strings.Split(r[2], ",")})
		case "cgroup2":
			found = append(found, mountPoint{path: unescape(l[4]), root: unescape(l[3]), v2: true})
		}
	}
	return found
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// parseSelf reads the text of /proc/self/cgroup: controller to path; "" is the v2 hierarchy.
func parseSelf(text string) map[string]string {
	paths := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, c := range strings.Split(parts[1], ",") {
			paths[c] = parts[2]
		}
	}
	return paths
}

// own returns the directory of this process's own group under a mount.
func own(m mountPoint, path string) string {
	rel := strings.TrimPrefix(path, strings.TrimSuffix(m.root, "/"))
	dir := filepath.Join(m.path, rel)
	if _, err := os.Stat(dir); err != nil {
		return m.path // a cgroup namespace or a bind mount shows another part of the tree
	}
	return dir
}

// detect finds for every controller the hierarchy that serves it, and a parent that groups can be made in.
func detect(mountinfo, self string) []hierarchy {
	mounts, paths := parseMounts(mountinfo), parseSelf(self)
	var found []hierarchy
	served := map[string]bool{}
	for _, m := range mounts {
		if m.v2 {
			continue
		}
		var here []string
		for _, c := range controllers {
			if slices.Contains(m.options, c) && !served[c] {
				here = append(here, c)
			}
		}
		if len(here) == 0 {
			continue
		}
		parent := own(m, paths[here[0]])
		if !writable(parent) {
			continue
		}
		for _, c := range here {
			served[c] = true
		}
		found = append(found, hierarchy{controllers: here, parent: parent})
	}
	for _, m := range mounts {
		if !m.v2 {
			continue
		}
		if h, ok := detectV2(m, own(m, paths[""]), served); ok {
			found = append(found, h)
		}
		break
	}
	return found
}

// detectV2 looks for a v2 group that may have children with controllers: one that holds no processes, or the root.
// That is the root group for root, and for an ordinary user the slice above the session's own scope.
func detectV2(m mountPoint, ownDir string, served map[string]bool) (hierarchy, bool) {
	for _, parent := range []string{m.path, filepath.Dir(ownDir), ownDir} {
		if !strings.HasPrefix(parent, m.path) || !writable(parent) {
			continue
		}
		available, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		if err != nil {
			continue
		}
		var here []string
		for _, c := range strings.Fields(string(available)) {
			if slices.Contains(controllers, c) && !served[c] && enable(parent, c) == nil {
				here = append(here, c)
			}
		}
		if len(here) > 0 {
			return hierarchy{v2: true, controllers: here, parent: parent}, true
		}
	}
	return hierarchy{}, false
}

// enable lets the children of a v2 group use a controller.
func enable(dir, controller string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
}

// writable tries to make a group, which is the only reliable answer.
func writable(parent string) bool {
	dir, err := os.MkdirTemp(parent, "agentbox-probe-")
	if err != nil {
		return false
	}
	return os.Remove(dir) == nil
}
