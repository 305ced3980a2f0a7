package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// relation is what /proc tells about a process's place among the others.
type relation struct{ pid, parent, session int }

// signalTree signals the members of a tree. SIGKILL first stops them all: while nobody dies, no parent link is lost, and
// a tree that forks meanwhile is caught up with.
func signalTree(members func() map[int]bool, sig syscall.Signal) {
	if sig != syscall.SIGKILL {
		for pid := range members() {
			_ = syscall.Kill(pid, sig)
		}
		return
	}
	stopped := map[int]bool{}
	for grew := true; grew; {
		grew = false
		for pid := range members() {
			if !stopped[pid] {
				stopped[pid], grew = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
	}
	for pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// tree lists leader, its session, the processes that carry its mark, and every descendant of those: a grandchild may have
// left the process group and the session, and may have lost the parent that linked it. envd itself is never among them.
func tree(leader int, m mark) map[int]bool {
	self := os.Getpid()
	all := relations()
	members := m.carriers(all)
	for grew := true; grew; {
		grew = false
		for _, r := range all {
			if members[r.pid] || r.pid == self {
				continue
			}
			if r.pid == leader || r.session == leader || members[r.parent] || leader == self && r.parent == self {
				members[r.pid], grew = true, true
			}
		}
	}
	return members
}

func relations() []relation {
	names, err := readNames("/proc")
	if err != nil {
		return nil
	}
	var all []relation
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		if r, ok := parseStat(pid, stat); ok {
			all = append(all, r)
		}
	}
	return all
}

// parseStat reads "pid (comm) state ppid pgrp session …"; comm may hold anything, parentheses included.
func parseStat(pid int, stat []byte) (relation, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 4 {
		return relation{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	return relation{pid: pid, parent: parent, session: session}, err1 == nil && err2 == nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
