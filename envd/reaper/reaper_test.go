package reaper

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func spawn(t *testing.T, r *Reaper, script string) *Child {
	t.Helper()
	child, err := r.Spawn("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func TestEveryStatusArrives(t *testing.T) {
	r := Start(nil)
	defer r.Stop()
	var all sync.WaitGroup
	for i := range 50 {
		child := spawn(t, r, "exit "+strconv.Itoa(i))
		all.Go(func() {
			<-child.Done()
			if got := child.Status().ExitStatus(); got != i {
				t.Errorf("child %d ended with %d", i, got)
			}
		})
	}
	all.Wait()
}

func TestGuard(t *testing.T) {
	r := Start(nil)
	defer r.Stop()
	child := spawn(t, r, "kill -STOP $$")
	if err := child.Guard(func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }); err != nil {
		t.Fatal(err)
	}
	<-child.Done()
	if !child.Status().Signaled() || !child.Exited() {
		t.Errorf("status %v", child.Status())
	}
	if err := child.Guard(func(int) error { t.Error("called for a pid that is no longer ours"); return nil }); !errors.Is(err, ErrExited) {
		t.Errorf("got %v", err)
	}
}

func TestFailedStart(t *testing.T) {
	r := Start(nil)
	defer r.Stop()
	if _, err := r.Spawn("/no/such/thing", nil, &syscall.ProcAttr{}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("got %v", err)
	}
}

func TestOrphansAreCollected(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	rounds := make(chan struct{}, 100)
	r := Start(func() { rounds <- struct{}{} })
	defer r.Stop()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	child, err := r.Spawn("/bin/sh", []string{"sh", "-c", "sh -c 'echo $$; exec sleep 0.05' & "}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, writer.Fd(), 2}})
	writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 32)
	n, err := reader.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	orphan := strings.TrimSpace(string(text[:n]))
	<-child.Done()
	for {
		if _, err := os.Stat("/proc/" + orphan); os.IsNotExist(err) {
			return // neither running nor a zombie
		}
		<-rounds
	}
}
