package watch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// readBuffer holds some hundred events; an event with the longest name has 16 + 256 bytes.
const readBuffer = 64 << 10

// run turns the kernel's events into ours until the watch is closed or has lost events.
func (w *Watcher) run() {
	defer close(w.stopped)
	r := reader{Watcher: w, reported: map[string]bool{}}
	buffer := make([]byte, readBuffer)
	for {
		events, err := w.notify.read(buffer)
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				err = fs.ErrClosed
			}
			w.fail(err)
			return
		}
		for _, event := range events {
			r.handle(event)
		}
		if !w.notify.pending() {
			r.settle()
		}
		if w.failed() {
			return
		}
	}
}

// reader is the state of the reading goroutine.
type reader struct {
	*Watcher
	// reported are names that were found in a new directory, whose own events may still be on their way.
	reported map[string]bool
	// leaving is a directory that was moved away and has not turned up elsewhere yet.
	leaving string
	cookie  uint32
}

func (r *reader) handle(event raw) {
	if event.mask&unix.IN_Q_OVERFLOW != 0 {
		r.fail(ErrOverflow)
		return
	}
	dir, known := r.dirs[event.wd]
	if !known {
		return // events of a directory that was left meanwhile
	}
	if event.mask&unix.IN_IGNORED != 0 {
		delete(r.dirs, event.wd)
		return
	}
	if r.leaving != "" && event.cookie != r.cookie {
		r.abandon()
	}
	if event.name == "" {
		r.self(dir, event.mask)
		return
	}
	path := filepath.Join(dir, event.name)
	isDir := event.mask&unix.IN_ISDIR != 0
	switch {
	case event.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		r.leaving = ""
		if isDir && r.recursive {
			r.explore(path, event.mask&unix.IN_MOVED_TO != 0)
		}
		if !r.reported[path] {
			r.put(r.name(path), Create)
		}
		delete(r.reported, path)
	case event.mask&unix.IN_MOVED_FROM != 0:
		delete(r.reported, path)
		r.put(r.name(path), Rename)
		if isDir && r.recursive {
			r.leaving, r.cookie = path, event.cookie
		}
	case event.mask&unix.IN_ATTRIB != 0:
		r.put(r.name(path), Chmod)
	case event.mask&unix.IN_MODIFY != 0:
		r.put(r.name(path), Write)
	case event.mask&unix.IN_DELETE != 0:
		delete(r.reported, path)
		r.put(r.name(path), Remove)
	}
}

// self handles events of a watched directory itself; those below the root come through their parent as well.
func (r *reader) self(dir string, mask uint32) {
	if dir != r.root {
		return
	}
	switch {
	case mask&unix.IN_MOVE_SELF != 0:
		r.put(".", Rename)
	case mask&unix.IN_ATTRIB != 0:
		r.put(".", Chmod)
	case mask&unix.IN_DELETE_SELF != 0:
		r.put(".", Remove)
	}
}

// explore watches a directory that has appeared. What is in a new one was created before anybody watched, so it is
// reported here. What came along with a moved one is not new, so the caller reports the directory itself, once all of
// it is watched: who has heard of it misses nothing in it.
func (r *reader) explore(dir string, moved bool) {
	err := r.user.Act(func() error {
		return r.enter(context.Background(), dir, func(path string) {
			if moved || r.reported[path] {
				return
			}
			r.reported[path] = true
			r.put(r.name(path), Create)
		})
	})
	if err != nil {
		r.fail(limited(err))
	}
}

// settle is called when the kernel has nothing more to say for now.
func (r *reader) settle() {
	clear(r.reported)
	if r.leaving != "" {
		r.abandon()
	}
}

// abandon stops watching a directory that was moved out of the tree.
func (r *reader) abandon() {
	gone := r.leaving
	r.leaving = ""
	for wd, path := range r.dirs {
		if path == gone || strings.HasPrefix(path, gone+"/") {
			r.notify.remove(wd)
			delete(r.dirs, wd)
		}
	}
}
