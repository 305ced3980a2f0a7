// Package usertest gives tests an account to act as and places that it can reach.
package usertest

import (
	"os"
	"path/filepath"
	"testing"

	"navix.sh/agentbox/envd/users"
)

// Nobody is an account that every system has and that may do next to nothing.
func Nobody(t testing.TB) users.User {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can act as another user")
	}
	found, err := users.Lookup("nobody")
	if err != nil {
		t.Skip("needs an account to act as: ", err)
	}
	return found
}

// Dir is a temporary directory that every user can write; those of testing are closed to others.
func Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
