// Package doctest runs what the documentation shows: shell blocks, transcripts and the JavaScript of the E2B guide,
// against the real platform.
package doctest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navix.sh/agentbox/internal/markdown"
)

const root = "../../"

// executed are the pages whose blocks are run; the others hold none.
var executed = []string{"README.md", "docs/installation.md", "docs/cli-guide.md", "docs/agents.md", "docs/e2b.md", "docs/operations.md", "docs/releases.md"}

// languages are what a block may be. Only sh, console and js are run; text is for what nobody is to run.
var languages = []string{"sh", "console", "js", "python", "text", "yaml", "json", "dockerfile"}

func page(t *testing.T, path string) *markdown.Page {
	t.Helper()
	p, err := markdown.Read(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBlocksSayWhatTheyAre: no block escapes being run by having no language, or by being on a page that is not listed.
func TestBlocksSayWhatTheyAre(t *testing.T) {
	paths, err := filepath.Glob(root + "docs/*.md")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d pages, %v", len(paths), err)
	}
	for _, path := range append(paths, root+"README.md") {
		path, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page(t, path).Blocks {
			if !slices.Contains(languages, b.Language) {
				t.Errorf("%s:%d: a block of %q: use one of %s", path, b.Line, b.Language, strings.Join(languages, ", "))
			}
			if (b.Language == "sh" || b.Language == "console") && !slices.Contains(executed, filepath.ToSlash(path)) {
				t.Errorf("%s:%d: a block to run on a page that no test runs", path, b.Line)
			}
		}
	}
}

// TestTranscriptsAreCompared: what a transcript may leave open, and what it may not.
func TestTranscriptsAreCompared(t *testing.T) {
	got := commandsOf("$ abx envs\nname  ready\ndemo  true\n\n$ node -e \"\n    1\"\nhello\n")
	want := []typed{{"abx envs", "name  ready\ndemo  true\n"}, {"node -e \"\n    1\"", "hello\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		page, answer string
		same         bool
	}{
		{"demo-…  4", "demo-x7k  12", true},
		{"name ready", "name    ready\n\nhint: abx envs", true},
		{"name ready", "name team", false},
		{"hint: abx envs", "hint: abx pools", false},
		{"hello", "", false},
	} {
		hints := strings.Contains(c.page, "hint: ")
		if (plain(c.page, hints) == plain(c.answer, hints)) != c.same {
			t.Errorf("%q and %q", c.page, c.answer)
		}
	}
}
