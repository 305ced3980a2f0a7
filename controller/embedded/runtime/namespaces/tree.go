package namespaces

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveTree deletes a directory that a sandbox wrote in. For an ordinary user a sandbox can leave directories
// without permissions behind, which os.RemoveAll cannot empty.
func RemoveTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			return nil
		}
		// WalkDir reports a directory before it reads it and again when it could not: both are chances to open it up.
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
