package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"navix.sh/agentbox/envd/reaper"
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
// that has left the session.
func TestSignalTreeWithoutCgroups(t *testing.T) {
	r := reaper.Start(nil)
	defer r.Stop()
	dir := t.TempDir()
	script := "setsid sh -c 'echo $$ > " + dir + "/pid; mkfifo " + dir + "/never; read x < " + dir + "/never' & mkfifo " + dir + "/wait; read x < " + dir + "/wait"
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	child, err := r.Spawn("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
		Files: []uintptr{null.Fd(), 2, 2},
		Env:   os.Environ(),
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
	if !tree(child.Pid)[grandchild] {
		t.Fatalf("the tree %v lacks the grandchild %d", tree(child.Pid), grandchild)
	}
	if err := child.Guard(func(pid int) error { signalTree(pid, syscall.SIGKILL); return nil }); err != nil {
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
