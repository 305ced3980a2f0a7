// Package watch reports what happens in a directory, or in a whole tree of them, with the rights of a user.
package watch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/users"
)

// Op is what happened to a name.
type Op int

// The operations. Rename is the old name's; the new one is a Create.
const (
	Create Op = iota + 1
	Write
	Remove
	Rename
	Chmod
)

// Event is one change. Name is relative to the watched directory, which itself is ".".
type Event struct {
	Name string
	Op   Op
}

// maxQueue is how many events wait for their reader before the watch gives up.
const maxQueue = 1 << 16

// ErrOverflow ends a watch that lost events, because its reader or envd was too slow for them.
var ErrOverflow = errors.New("the watch has lost events, because more happened than was read: list the directory and watch it again")

// ErrLimit says that the kernel allows the user no further watches.
var ErrLimit = errors.New("the kernel's limit of watches is reached: watch fewer directories, or raise fs.inotify.max_user_watches and max_user_instances on the node")

// Watcher watches until Close.
type Watcher struct {
	root      string
	recursive bool
	user      users.User
	notify    *inotify
	dirs      map[int]string // watch descriptor → path; only the reading goroutine touches it once that runs
	stopped   chan struct{}

	mu     sync.Mutex
	queue  []Event
	err    error
	signal chan struct{} // holds one token when there is something to take
}

// New watches dir. The error is the file system's, or ErrLimit.
func New(ctx context.Context, user users.User, dir string, recursive bool) (*Watcher, error) {
	w := &Watcher{
		recursive: recursive,
		user:      user,
		dirs:      map[int]string{},
		stopped:   make(chan struct{}),
		signal:    make(chan struct{}, 1),
	}
	err := user.Act(func() (err error) {
		if w.root, err = filepath.EvalSymlinks(dir); err != nil {
			return err
		}
		if w.notify, err = newInotify(); err != nil {
			return err
		}
		return w.enter(ctx, w.root, func(string) {})
	})
	if err != nil {
		if w.notify != nil {
			w.notify.file.Close()
		}
		return nil, limited(err)
	}
	go w.run()
	return w, nil
}

// Close ends the watch; Next then answers fs.ErrClosed.
func (w *Watcher) Close() {
	w.notify.file.Close()
	<-w.stopped
}

// Next waits for events and takes all there are. It answers nothing when beat ticks first; after the events it answers
// the error that ended the watch.
func (w *Watcher) Next(ctx context.Context, beat <-chan time.Time) ([]Event, error) {
	for {
		events, err := w.Take()
		if len(events) > 0 || err != nil {
			return events, err
		}
		select {
		case <-w.signal:
		case <-beat:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Take returns the events that wait, or, when there are none, what ended the watch.
func (w *Watcher) Take() ([]Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.queue
	w.queue = nil
	if len(events) > 0 {
		return events, nil
	}
	return nil, w.err
}

func (w *Watcher) put(name string, op Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(w.queue) == maxQueue {
		w.err = ErrOverflow
	} else {
		w.queue = append(w.queue, Event{Name: name, Op: op})
	}
	w.wake()
}

func (w *Watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.wake()
}

func (w *Watcher) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *Watcher) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// enter watches dir and, in a recursive watch, the directories below it. found is told of dir and all that is below it,
// of a directory only once it is watched: who has heard of it misses nothing in it.
func (w *Watcher) enter(ctx context.Context, dir string, found func(path string)) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && path == w.root:
			return err
		case err != nil:
			return nil //nolint:nilerr // it vanished, or is closed to this user
		case path == w.root && !d.IsDir():
			return unix.ENOTDIR
		case !d.IsDir():
			found(path)
			return nil
		}
		// WalkDir reads the directory after this has returned, so nothing falls in between.
		wd, err := w.notify.add(path)
		switch {
		case err == nil:
			w.dirs[wd] = path
		case path == w.root || errors.Is(err, unix.ENOSPC):
			return os.NewSyscallError("inotify_add_watch", err)
		}
		found(path)
		if !w.recursive {
			return filepath.SkipDir
		}
		return nil
	})
}

func limited(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EMFILE) {
		return ErrLimit
	}
	return err
}

func (w *Watcher) name(path string) string {
	if path == w.root {
		return "."
	}
	return strings.TrimPrefix(strings.TrimPrefix(path, w.root), "/")
}
