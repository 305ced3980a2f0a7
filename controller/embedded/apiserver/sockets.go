package apiserver

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxSocketPath is what fits into a sockaddr_un on every system we build for.
const maxSocketPath = 100

// privateSocketDir returns a 0700 directory for sockets: below dir, or a temporary one where the path would be too long
// or would not survive being part of a URL.
func privateSocketDir(dir string) (string, error) {
	d := filepath.Join(dir, "sock")
	if len(d) > maxSocketPath-len("/etcd.sock") || strings.ContainsFunc(d, specialInURL) {
		return temporarySocketDir(dir)
	}
	if err := os.MkdirAll(d, 0o700); err != nil {
		return "", fmt.Errorf("make a directory for sockets: %w", err)
	}
	return d, os.Chmod(d, 0o700)
}

func specialInURL(r rune) bool {
	return r > 0x7e || r <= ' ' || strings.ContainsRune("%?#@:\\\"<>[]{}|^`", r)
}

// temporarySocketDir has a name that follows from dir, so that a process that was killed leaves one directory behind
// and not one a start. Somebody else may have made it first; then any name will do.
func temporarySocketDir(dir string) (string, error) {
	d := filepath.Join(os.TempDir(), fmt.Sprintf("agentbox-%.8x", sha256.Sum256([]byte(dir))))
	err := os.Mkdir(d, 0o700)
	if err == nil || (errors.Is(err, fs.ErrExist) && ownedPrivately(d)) {
		return d, nil
	}
	if d, err = os.MkdirTemp("", "agentbox-"); err != nil {
		return "", fmt.Errorf("make a directory for sockets: %w", err)
	}
	return d, nil
}

func ownedPrivately(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// removeStale removes the socket of a process that was killed: the lock of the data directory says that it has gone.
func removeStale(socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a stale socket: %w", err)
	}
	return nil
}
