package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

const (
	// noticeEvery is how long one look at the releases holds.
	noticeEvery = 24 * time.Hour
	// noticeBudget bounds what a look may add to a command.
	noticeBudget = 300 * time.Millisecond
	// maxVersion bounds what is printed of a server's answer.
	maxVersion = 64
)

// NoticeOptions says on whose behalf a notice is given.
type NoticeOptions struct {
	// Current is the running version; a build from source gets no notice.
	Current string
	Getenv  func(string) string
	// Err is standard error and Terminal whether a person reads it.
	Err      io.Writer
	Terminal bool
	// JSON is true when the command's output is for a program.
	JSON bool
	// Source is where releases come from; called only when it is time to look.
	Source func() (Source, error)
	Now    func() time.Time
}

// seen is what the last look found. It is kept in $XDG_CACHE_HOME/abx/upgrade.json.
type seen struct {
	At      time.Time `json:"at"`
	Version string    `json:"version"`
}

// Notice says on standard error that a newer release is there: to a person, not in CI, at most once a day, and never when
// AGBX_NO_UPDATE_NOTICE is set. It looks at most once a day, for no longer than noticeBudget, and a look that fails is
// silent and counts: a machine without network pays once a day. It reads the release's VERSION and nothing else: what an
// upgrade installs is verified by the upgrade.
func Notice(ctx context.Context, o NoticeOptions) {
	if !o.Terminal || o.JSON || o.Getenv("CI") != "" || o.Getenv("AGBX_NO_UPDATE_NOTICE") != "" || !isRelease(o.Current) {
		return
	}
	path := noticeFile(o.Getenv)
	if path == "" || !due(path, o.Now()) {
		return
	}
	// Written first: whatever happens now, the next command does not look again.
	if err := remember(path, seen{At: o.Now()}); err != nil {
		return // without a memory it would look at every command
	}
	source, err := o.Source()
	if err != nil {
		return // no address or no key: `abx upgrade` says so to whoever asks
	}
	ctx, cancel := context.WithTimeout(ctx, noticeBudget)
	defer cancel()
	raw, err := source.get(ctx, source.base+"/VERSION")
	version := strings.TrimSpace(string(raw))
	if err != nil || len(version) > maxVersion || semver.Compare(version, o.Current) <= 0 {
		return // what is no version compares as the least
	}
	_ = remember(path, seen{At: o.Now(), Version: version}) // only for the curious: the time is there already
	fmt.Fprintf(o.Err, "\nabx %s is available, this is %s: abx upgrade (AGBX_NO_UPDATE_NOTICE=1 turns this off)\n", version, o.Current)
}

// noticeFile is empty when there is no folder for caches.
func noticeFile(getenv func(string) string) string {
	dir := getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".cache")
	}
	return filepath.Join(dir, "abx", "upgrade.json")
}

// due tells whether a day has gone by. A file that cannot be read as ours, or is from the future, counts as none.
func due(path string, now time.Time) bool {
	raw, err := os.ReadFile(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	var last seen
	if json.Unmarshal(raw, &last) != nil || last.At.After(now) {
		return true
	}
	return now.Sub(last.At) >= noticeEvery
}

func remember(path string, s seen) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".upgrade-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(raw)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
