package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// install copies the running binary to path, so that a container without envd can run it. The copy appears whole or not
// at all, and replaces an older one that is running.
func install(path string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("cannot read envd itself: %w", err)
	}
	defer self.Close()
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "envd")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	copied, err := os.CreateTemp(filepath.Dir(path), ".envd-*")
	if err != nil {
		return err
	}
	defer os.Remove(copied.Name()) // after the rename it is not there
	defer copied.Close()
	if _, err := io.Copy(copied, self); err != nil {
		return err
	}
	if err := errors.Join(copied.Chmod(0o755), copied.Sync(), copied.Close()); err != nil {
		return err
	}
	return os.Rename(copied.Name(), path)
}
