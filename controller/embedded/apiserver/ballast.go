package apiserver

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxBallast is what is kept back for the store, in bytes; on a small disk it is a sixteenth.
	maxBallast = 64 << 20
	// ballastEvery is short because a sandbox can fill a disk in less than a second.
	ballastEvery = 100 * time.Millisecond
)

// ballast is a file beside the store that takes up room for nothing else than to give it back: when the disk is nearly
// full it goes, so that the store can write until somebody has made room.
type ballast struct {
	path string
	log  *slog.Logger
	held bool
	stop chan struct{}
	done chan struct{}
}

// startBallast keeps a ballast at path until close. The file stays for the next start, which may find the disk full: the
// first adjustment is made before this returns.
func startBallast(path string, log *slog.Logger) *ballast {
	b := &ballast{path: path, log: log, stop: make(chan struct{}), done: make(chan struct{})}
	err := b.adjust()
	go b.run(err)
	return b
}

func (b *ballast) close() {
	close(b.stop)
	<-b.done
}

func (b *ballast) run(err error) {
	defer close(b.done)
	tick := time.NewTicker(ballastEvery)
	defer tick.Stop()
	for err == nil || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		select {
		case <-b.stop:
			return
		case <-tick.C:
			err = b.adjust()
		}
	}
	b.log.Warn("no room is kept back for the store: it stops when the disk is full", "file", b.path, "error", err)
}

// adjust gives the ballast up when a sixty-fourth of the disk is left, or as much as the largest ballast, and takes it
// when there is room for it and four times that.
func (b *ballast) adjust() error {
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(b.path), &s); err != nil {
		return err
	}
	total, free := s.Blocks*uint64(s.Bsize), s.Bavail*uint64(s.Bsize)
	size, low := min(total/16, maxBallast), min(total/64, maxBallast)
	switch {
	case free < low:
		// Also when it is not held: a former process may have left it.
		if err := os.Remove(b.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if b.held {
			b.held = false
			b.log.Warn("the disk is nearly full: the room kept back for the store is given up", "free", free)
		}
	case !b.held && free >= size+4*low:
		if err := allocate(b.path, int64(size)); err != nil {
			return err
		}
		b.held = true
	}
	return nil
}

// allocate makes a file of a size whose blocks are there.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
