package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// TryOverlay says why the file system under dir, which is empty, cannot carry the writable layers of containers: inside
// a container, for one, it is often an overlay itself.
func TryOverlay(dir string, userXattr bool) error {
	m := Mount{
		Kind: Overlay, Target: "/", UserXattr: userXattr,
		Lower: filepath.Join(dir, "lower"), Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work"),
	}
	for _, d := range []string{m.Lower, m.Upper, m.Work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	const old, made = "old", "made"
	if err := os.WriteFile(filepath.Join(m.Lower, old), nil, 0o644); err != nil {
		return err
	}
	root, err := m.Open("")
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if err := unix.Mkdirat(root, made, 0o755); err != nil {
		return fmt.Errorf("make a directory in an overlay: %w", err)
	}
	if err := unix.Unlinkat(root, old, 0); err != nil {
		return fmt.Errorf("delete a file of the lower layer of an overlay: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(root, old, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
		return errors.New("a file of the lower layer of an overlay stays after it was deleted")
	}
	return nil
}
