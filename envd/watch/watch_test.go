package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/internal/usertest"
	"navix.sh/agentbox/envd/users"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func watcher(t *testing.T, dir string, recursive bool) *Watcher {
	t.Helper()
	w, err := New(t.Context(), users.Current(), dir, recursive)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// until collects events up to and including one.
func until(t *testing.T, w *Watcher, last Event) []Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var all []Event
	for !slices.Contains(all, last) {
		events, err := w.Next(ctx, nil)
		if err != nil {
			t.Fatalf("waiting for %v: %v; so far %v", last, err, all)
		}
		all = append(all, events...)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFlat(t *testing.T) {
	dir := usertest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(at("sub"), 0o755))
	w := watcher(t, dir, false)
	must(t, os.WriteFile(at("f"), []byte("x"), 0o600))
	must(t, os.Chmod(at("f"), 0o644))
	must(t, os.WriteFile(at("sub/unseen"), nil, 0o600))
	must(t, os.Rename(at("f"), at("g")))
	must(t, os.Remove(at("g")))
	got := until(t, w, Event{"g", Remove})
	want := []Event{{"f", Create}, {"f", Write}, {"f", Chmod}, {"f", Rename}, {"g", Create}, {"g", Remove}}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRecursiveTakesUpLaterDirectories(t *testing.T) {
	dir := usertest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	w := watcher(t, dir, true)
	must(t, os.MkdirAll(at("a/b/c"), 0o755))
	must(t, os.WriteFile(at("a/b/c/early"), nil, 0o600))
	got := until(t, w, Event{"a/b/c/early", Create})
	for _, name := range []string{"a", "a/b", "a/b/c", "a/b/c/early"} {
		if n := count(got, Event{name, Create}); n != 1 {
			t.Errorf("%s was created %d times in %v", name, n, got)
		}
	}
	must(t, os.WriteFile(at("a/b/c/late"), nil, 0o600))
	until(t, w, Event{"a/b/c/late", Create})
}

func count(events []Event, event Event) (n int) {
	for _, e := range events {
		if e == event {
			n++
		}
	}
	return n
}

func TestMovedDirectories(t *testing.T) {
	dir, outside := usertest.Dir(t), usertest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(at("a/deep"), 0o755))
	w := watcher(t, dir, true)

	must(t, os.Rename(at("a"), at("b")))
	until(t, w, Event{"b", Create})
	must(t, os.WriteFile(at("b/deep/f"), nil, 0o600))
	if got := until(t, w, Event{"b/deep/f", Create}); count(got, Event{"a/deep/f", Create}) != 0 {
		t.Errorf("the old name is used: %v", got)
	}
	must(t, os.Rename(at("b"), filepath.Join(outside, "b")))
	until(t, w, Event{"b", Rename})
	must(t, os.WriteFile(filepath.Join(outside, "b/deep/unseen"), nil, 0o600))
	must(t, os.WriteFile(at("seen"), nil, 0o600))
	must(t, os.Rename(filepath.Join(outside, "b"), at("back")))
	got := until(t, w, Event{"back", Create})
	must(t, os.WriteFile(at("back/deep/again"), nil, 0o600))
	got = append(got, until(t, w, Event{"back/deep/again", Create})...)
	for _, event := range got {
		if filepath.Base(event.Name) == "unseen" {
			t.Errorf("seen outside the tree: %v", event)
		}
	}
}

func TestRemovedRoot(t *testing.T) {
	dir := filepath.Join(usertest.Dir(t), "root")
	must(t, os.Mkdir(dir, 0o755))
	w := watcher(t, dir, true)
	must(t, os.Remove(dir))
	until(t, w, Event{".", Remove})
}

func TestLinksAreNotFollowed(t *testing.T) {
	dir, outside := usertest.Dir(t), usertest.Dir(t)
	w := watcher(t, dir, true)
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	until(t, w, Event{"link", Create})
	must(t, os.WriteFile(filepath.Join(outside, "f"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	if got := until(t, w, Event{"end", Create}); count(got, Event{"link/f", Create}) != 0 {
		t.Errorf("the link was followed: %v", got)
	}
}

func TestOverflowIsReported(t *testing.T) {
	w := watcher(t, usertest.Dir(t), false)
	for i := range maxQueue + 1 {
		w.put(fmt.Sprint(i), Create)
	}
	events, err := w.Take()
	if len(events) != maxQueue || err != nil {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if _, err := w.Take(); !errors.Is(err, ErrOverflow) {
		t.Errorf("got %v", err)
	}
	r := reader{Watcher: watcher(t, usertest.Dir(t), false)}
	r.handle(raw{wd: -1, mask: unix.IN_Q_OVERFLOW})
	if _, err := r.Take(); !errors.Is(err, ErrOverflow) {
		t.Errorf("the kernel's overflow gave %v", err)
	}
}

func TestClose(t *testing.T) {
	w, err := New(t.Context(), users.Current(), usertest.Dir(t), false)
	must(t, err)
	w.Close()
	if _, err := w.Next(t.Context(), nil); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v", err)
	}
	w.Close()
}

func FuzzDecode(f *testing.F) {
	event := make([]byte, unix.SizeofInotifyEvent+16)
	binary.NativeEndian.PutUint32(event, 1)
	binary.NativeEndian.PutUint32(event[12:], 16)
	copy(event[16:], "name")
	f.Add(event)
	f.Add(append(event, event[:7]...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, buffer []byte) {
		events, err := decode(buffer)
		if err == nil && len(buffer) > 0 && len(events) == 0 {
			t.Error("bytes without an event and without an error")
		}
	})
}
