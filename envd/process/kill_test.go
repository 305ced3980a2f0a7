package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"navix.sh/agentbox/envd/reaper"
	"navix.sh/agentbox/envd/users"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseStat(t *testing.T) {
	for _, test := range []struct {
		stat string
		want relation
		ok   bool
	}{
		{"7 (sh) S 3 7 5 0", relation{7, 3, 5}, true},
		{"7 (a) b) (c) R 3 7 5 0", relation{7, 3, 5}, true},
		{"7 (sh) S x 7 5", relation{}, false},
		{"7 (sh", relation{}, false},
		{"", relation{}, false},
	} {
		if got, ok := parseStat(7, []byte(test.stat)); ok != test.ok || ok && got != test.want {
			t.Errorf("%q: %+v %v", test.stat, got, ok)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (sh) S 3 7 5 0"))
	f.Add([]byte("7 (()))) S 3 7"))
	f.Fuzz(func(t *testing.T, stat []byte) { parseStat(7, stat) })
}

// TestSignalTreeWithoutCgroups proves the walk that serves where cgroups cannot be written: it must reach a grandchild
// that has left the session, and one whose parent is gone besides.
func TestSignalTreeWithoutCgroups(t *testing.T) {
	for name, form := range map[string]string{"own session": "setsid sh -c '%s' &", "daemon": "(setsid sh -c '%s' &)"} {
		t.Run(name, func(t *testing.T) { testSignalTree(t, form) })
	}
}

func testSignalTree(t *testing.T, form string) {
	m := newMark(users.Current())
	r := reaper.Start(nil)
	defer r.Stop()
	dir := t.TempDir()
	script := fmt.Sprintf(form, "mkfifo "+dir+"/never; echo $$ > "+dir+"/pid; read x < "+dir+"/never") +
		"\nmkfifo " + dir + "/wait; read x < " + dir + "/wait"
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	child, err := r.Spawn("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
		Files: []uintptr{null.Fd(), 2, 2},
		Env:   m.in(os.Environ()),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	var grandchild int
	for grandchild == 0 {
		text, _ := os.ReadFile(filepath.Join(dir, "pid"))
		grandchild, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	members := func() map[int]bool { return tree(child.Pid, m) }
	if !members()[grandchild] {
		t.Fatalf("the tree %v lacks the grandchild %d", members(), grandchild)
	}
	if err := child.Guard(func(int) error { signalTree(members, syscall.SIGKILL); return nil }); err != nil {
		t.Fatal(err)
	}
	<-child.Done()
	if !child.Status().Signaled() || child.Status().Signal() != syscall.SIGKILL {
		t.Errorf("status %v", child.Status())
	}
	for gone := false; !gone; {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(grandchild) + "/stat")
		gone = err != nil || strings.Contains(string(stat), ") Z ")
	}
	if err := child.Guard(func(int) error { return nil }); !errors.Is(err, reaper.ErrExited) {
		t.Errorf("after its end: %v", err)
	}
}
