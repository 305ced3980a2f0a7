package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/agentbox/cli"
)

// TestReferenceIsCurrent compares docs/reference with what the binary would write:
// `go generate ./cli` renews it.
func TestReferenceIsCurrent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "docs", "reference")
	pages, err := cli.NewApp().Reference()
	if err != nil {
		t.Fatal(err)
	}
	expected := map[string]string{}
	for _, p := range pages {
		if _, twice := expected[p.Name+".md"]; twice {
			t.Errorf("two pages are called %s", p.Name)
		}
		expected[p.Name+".md"] = p.Markdown
		expected[filepath.Join("man", p.Name+".1")] = p.Man
	}
	for name, want := range expected {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s is not current: run go generate ./cli", name)
		}
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err == nil && !d.IsDir() && name != "README.md" && expected[name] == "" {
			t.Errorf("%s describes no command any more: run go generate ./cli", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if !strings.Contains(p.Markdown, "abx ") || !strings.HasPrefix(p.Man, ".TH ABX") {
			t.Errorf("%s has no content", p.Name)
		}
	}
}
