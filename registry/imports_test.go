package registry_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportsOnlyTheStandardLibrary keeps the registry cheap to start: a program that
// imports it pays for nothing else.
func TestImportsOnlyTheStandardLibrary(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			if first, _, _ := strings.Cut(strings.Trim(spec.Path.Value, `"`), "/"); strings.Contains(first, ".") {
				t.Errorf("%s imports %s", file, spec.Path.Value)
			}
		}
	}
}
