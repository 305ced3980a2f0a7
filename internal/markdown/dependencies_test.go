package markdown

import (
	"os"
	"strings"
	"testing"
)

// TestDependenciesHaveReasons: every module that go.mod requires directly stands in docs/dependencies.md.
func TestDependenciesHaveReasons(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "\t") || len(fields) < 2 || strings.Contains(line, "// indirect") {
			continue
		}
		if !strings.Contains(string(page), fields[0]) {
			t.Errorf("docs/dependencies.md does not say why %s is needed", fields[0])
		}
	}
}
