package testplatform

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// E2BPackages returns the node_modules folder of testdata/e2b with the published E2B packages at their pinned versions,
// and installs them when they are not there. Test processes that run side by side wait for one another. The test is
// skipped where there is no node, or where npm cannot fetch the packages; AGENTBOX_REQUIRE_E2B_PACKAGES makes that a
// failure.
func E2BPackages(t testing.TB) string {
	t.Helper()
	give := t.Skipf
	if os.Getenv("AGENTBOX_REQUIRE_E2B_PACKAGES") != "" {
		give = t.Fatalf
	}
	if _, err := exec.LookPath("node"); err != nil {
		give("node is not on this machine")
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(root, "testdata", "e2b")
	// The lock stands beside node_modules, which npm ci removes.
	guard, err := os.Create(filepath.Join(folder, ".install.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(folder, "node_modules")
	pinned, err := os.ReadFile(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	stamp := filepath.Join(modules, ".installed-lock.json")
	if have, err := os.ReadFile(stamp); err == nil && bytes.Equal(have, pinned) {
		return modules
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = folder
	if out, err := npm.CombinedOutput(); err != nil {
		give("the E2B packages of testdata/e2b/package-lock.json are not installed and npm cannot fetch them: %v\n%s", err, out)
	}
	if err := os.WriteFile(stamp, pinned, 0o644); err != nil {
		t.Fatal(err)
	}
	return modules
}
