// Package testplatform runs the real platform for tests: the binaries as they ship, in a data directory of their own.
package testplatform

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var built struct {
	once sync.Once
	dir  string
	err  string
}

// Build compiles every command once and returns the folder that holds them. Test processes that run side by side wait
// for one another; an up-to-date binary costs nothing.
func Build(t testing.TB) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = build() })
	if built.err != "" {
		t.Fatalf("build the commands: %s", built.err)
	}
	return built.dir
}

func build() (string, string) {
	root, err := repository()
	if err != nil {
		return "", err.Error()
	}
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err.Error()
	}
	lock, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return "", err.Error()
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err.Error()
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "./cmd/...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", err.Error() + "\n" + string(out)
	}
	return dir, ""
}

// repository finds the module's root above the test's folder.
func repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if raw, readErr := os.ReadFile(filepath.Join(dir, "go.mod")); readErr == nil && strings.HasPrefix(string(raw), "module navix.sh/agentbox\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", os.ErrNotExist
		}
		dir = parent
	}
	return "", err
}
