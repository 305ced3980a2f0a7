package image

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

// minUnused is how long an image must have been unused to be removed, as with a kubelet: one that was just pulled is
// about to be used.
const minUnused = 2 * time.Minute

// Use notes that an image is used now, and reports whether it is still there.
func (s *Store) Use(img *Image) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch(img.ID)
	_, err := os.Stat(img.Tree)
	return err == nil
}

// Used notes that an image was used until now.
func (s *Store) Used(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch(id)
}

// touch keeps the time of the last use as that of the image's record; built-in images have none, and are not removed.
func (s *Store) touch(id string) {
	now := time.Now()
	_ = os.Chtimes(s.recordPath(id), now, now)
}

// Collect removes pulled images, the longest unused first, until enough returns true. It keeps those that inUse names
// by ID, those being pulled, and those used a moment ago. inUse is asked before every removal, while Use waits: who
// names an image first and then calls Use either finds it there or keeps it.
func (s *Store) Collect(enough func() bool, inUse func() map[string]bool) (removed []string, err error) {
	records, err := filepath.Glob(s.recordPath("sha256:*"))
	if err != nil {
		return nil, err
	}
	type candidate struct {
		id   string
		used time.Time
	}
	var all []candidate
	for _, record := range records {
		dir := filepath.Dir(record)
		link, err := os.Lstat(dir)
		st, err2 := os.Lstat(record)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		if link.IsDir() { // and not another name of an image
			all = append(all, candidate{strings.Replace(filepath.Base(dir), "-", ":", 1), st.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.id, b.id)) })
	for _, c := range all {
		if time.Since(c.used) < minUnused || enough() {
			break
		}
		trash, err := s.discard(c.id, inUse)
		if err != nil {
			return removed, fmt.Errorf("remove image %s: %w", c.id, err)
		}
		if trash == "" {
			continue
		}
		removed = append(removed, c.id)
		if err := namespaces.RemoveTree(trash); err != nil {
			return removed, err // the next start deletes what is left
		}
	}
	return removed, nil
}

// discard takes an image and its names out of the store, and returns where its files are until they are deleted; that
// is nowhere when the image has to stay. What a crash in the middle leaves is a name of nothing, which counts as none.
func (s *Store) discard(id string, inUse func() map[string]bool) (trash string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pulls[id] != nil || inUse()[id] {
		return "", nil
	}
	dir := s.imageDir(id)
	trash = filepath.Join(s.dir, tmpPrefix+filepath.Base(dir))
	if err := os.Rename(dir, trash); err != nil {
		return "", err
	}
	for name, img := range s.images {
		if img.ID == id {
			delete(s.images, name)
		}
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return trash, err
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		var names string
		switch {
		case strings.HasPrefix(e.Name(), tagPrefix):
			var data []byte
			data, err = os.ReadFile(path)
			names = string(data)
		case e.Type()&fs.ModeSymlink != 0:
			names, err = os.Readlink(path)
		}
		if err == nil && (names == id || names == filepath.Base(dir)) {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a pull of another image may be renaming its tag
			return trash, err
		}
	}
	return trash, nil
}
