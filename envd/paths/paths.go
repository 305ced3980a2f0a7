// Package paths turns the paths of requests into absolute ones.
package paths

import (
	"errors"
	"path/filepath"
	"strings"
)

// ErrNUL refuses a path that no file can have.
var ErrNUL = errors.New("a path must not contain a NUL byte")

// Resolve makes path absolute and clean: empty is workdir (home when there is none), ~ and ~/x are in home, a
// relative path is below home. It looks at nothing on disk and follows no link.
func Resolve(path, home, workdir string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", ErrNUL
	}
	switch {
	case path == "" && workdir != "":
		path = workdir
	case path == "" || path == "~":
		path = home
	case strings.HasPrefix(path, "~/"):
		path = filepath.Join(home, path[2:])
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join("/", home, path)
	}
	return filepath.Clean(path), nil
}
