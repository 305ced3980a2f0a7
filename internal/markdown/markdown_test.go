package markdown

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "# A `page`, and more\n\nSee [one](x.md#a) and `abx envs`.\n\n## Twice\n## Twice\n\n<!-- not run: needs a cluster -->\n" +
	"```sh\nabx envs\n```\n\n- item\n\n  ```text\n  shown\n  ```\n\n| a |\n|---|\n| `in a table` [two](y.md) |\n"

func TestParse(t *testing.T) {
	got := Parse("p.md", []byte(page))
	want := &Page{
		Path: "p.md",
		Blocks: []Block{
			{Line: 10, Language: "sh", Text: "abx envs\n", NotRun: "needs a cluster"},
			{Line: 16, Language: "text", Text: "shown\n"},
		},
		Spans:   []Span{{1, "page"}, {3, "abx envs"}, {21, "in a table"}},
		Links:   []Link{{3, "x.md#a"}, {21, "y.md"}},
		Anchors: map[string]bool{"a-page-and-more": true, "twice": true, "twice-1": true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCommands(t *testing.T) {
	for text, want := range map[string][]Command{
		"abx envs": {{1, []string{"abx", "envs"}}},
		"# abx no\nX=1 abx envs demo --jq '.a | .b' | head >f": {{2, []string{"abx", "envs", "demo", "--jq", ".a | .b"}}},
		"echo k | bin/abx context set \"a b\" && abx whoami":   {{1, []string{"bin/abx", "context", "set", "a b"}}, {1, []string{"abx", "whoami"}}},
		"id=$(abx envs \\\n  --format name)":                   {{1, []string{"abx", "envs", "--format", "name"}}},
		"abx envs \"$name\" $(cat x)":                          {{1, []string{"abx", "envs", "$name", "$(cat x)"}}},
		"other abx":                                            nil,
	} {
		got, err := Commands(text, "abx")
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	if _, err := Commands("abx 'envs", "abx"); err == nil {
		t.Error("an open quote is no error")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(page))
	f.Add([]byte("```sh\n"))
	f.Add([]byte("[](<>)`"))
	f.Fuzz(func(_ *testing.T, source []byte) {
		for _, b := range Parse("p.md", source).Blocks {
			_, _ = Commands(b.Text, "abx")
		}
	})
}
