package registry_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"navix.sh/agentbox/registry"
)

func TestSplitPath(t *testing.T) {
	for path, want := range map[string][]string{
		"name":                                  {"name"},
		"spec.templateRef.name":                 {"spec", "templateRef", "name"},
		`metadata["quota.scitix.ai/pool-type"]`: {"metadata", "quota.scitix.ai/pool-type"},
		`a["b"].c`:                              {"a", "b", "c"},
		`["x\"y"]`:                              {`x"y`},
		"":                                      nil, ".": nil, "a.": nil, "a..b": nil, `a[`: nil, `a["b"`: nil, `a["b"]c`: nil, `a[""]`: nil, `a.["b"]`: nil,
	} {
		got, err := registry.SplitPath(path)
		if (err != nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("SplitPath(%q) = %q %v, want %q", path, got, err, want)
		}
	}
}

func TestLookup(t *testing.T) {
	row := map[string]any{"a": map[string]any{"b.c": 1, "n": nil}, "s": "x"}
	for path, want := range map[string]any{`a["b.c"]`: 1, "s": "x", "a.n": nil} {
		if got, ok := registry.Lookup(row, path); !ok || got != want {
			t.Errorf("Lookup(%q) = %v %v, want %v", path, got, ok, want)
		}
	}
	for _, path := range []string{"z", "s.x", "a.b.c", "", "a.n.x"} {
		if got, ok := registry.Lookup(row, path); ok {
			t.Errorf("Lookup(%q) = %v, want nothing", path, got)
		}
	}
	if _, ok := registry.Lookup(nil, "a"); ok {
		t.Error("something is found in nothing")
	}
}

// FuzzSplitPath: a path either splits into names that, quoted, split the same, or is refused.
func FuzzSplitPath(f *testing.F) {
	for _, seed := range []string{"a.b", `a["b/c"].d`, `["\u00e4"]`, "a..b", `a["`, "日本.x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		names, err := registry.SplitPath(path)
		if err != nil {
			return
		}
		var b strings.Builder
		for _, n := range names {
			b.WriteString("[" + strconv.Quote(n) + "]")
		}
		again, err := registry.SplitPath(b.String())
		if err != nil || len(again) != len(names) {
			t.Fatalf("%q = %q, and quoted %q = %q %v", path, names, b.String(), again, err)
		}
	})
}
