package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

const (
	// maxBinary is the largest stripped linux/amd64 binary, in bytes.
	maxBinary = 15 << 20
	// maxInit is the longest that all package initialisation may take together, in milliseconds.
	maxInit = 2.0
)

// heavy are packages that cost size or start-up time, or would tie the command line to
// the controller.
var heavy = []string{
	"github.com/getkin/kin-openapi", "k8s.io/client-go", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime",
	"navix.sh/agentbox/controller", "navix.sh/agentbox/openapi", "navix.sh/agentbox/registry/compile", "navix.sh/agentbox/envd",
	"github.com/spf13/cobra/doc", "github.com/alecthomas/chroma", "github.com/charmbracelet/glamour", "google.golang.org/protobuf",
}

func TestImportsStayLight(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		for _, h := range heavy {
			if pkg == h || strings.HasPrefix(pkg, h+"/") {
				t.Errorf("abx imports %s", pkg)
			}
		}
	}
}

// build builds a stripped linux/amd64 binary as a release does.
func build(t testing.TB, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func TestBinaryIsSmallAndStartsFast(t *testing.T) {
	t.Parallel()
	path := build(t, ".")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxBinary {
		t.Errorf("the binary has %d bytes, at most %d", info.Size(), maxBinary)
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("package initialisation is measured on linux/amd64 only, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	best, worst := 1e9, ""
	for range 15 { // the least of several: a busy machine only adds
		if ms, slowest := initTime(t, path); ms < best {
			best, worst = ms, slowest
		}
	}
	t.Logf("%d bytes, %.2f ms of initialisation", info.Size(), best)
	if best > maxInit {
		t.Errorf("package initialisation takes %.2f ms, at most %.1f; slowest: %s", best, maxInit, worst)
	}
}

// initTime sums what the runtime reports for every package, and names the slowest.
func initTime(t *testing.T, path string) (float64, string) {
	cmd := exec.Command(path, "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	sum, slowest, name := 0.0, 0.0, ""
	for line := range strings.Lines(trace.String()) {
		f := strings.Fields(line) // init <package> @<start> ms, <clock> ms clock, …
		if len(f) < 6 || f[0] != "init" {
			continue
		}
		ms, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			t.Fatalf("unknown form of inittrace: %q", line)
		}
		sum += ms
		if ms > slowest {
			slowest, name = ms, f[1]
		}
	}
	if sum == 0 {
		t.Fatal("the runtime reported no initialisation")
	}
	return sum, name
}
