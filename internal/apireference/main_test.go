package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navix.sh/agentbox/internal/markdown"
	"navix.sh/agentbox/registry"
)

func TestPageIsCurrent(t *testing.T) {
	want := render(registry.Default())
	got, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/api.md is not what the document renders to (go generate ./internal/apireference):\n%s", diff)
	}
}

// TestEverythingIsLinked: each operation and schema has a heading under the name that the page links to.
func TestEverythingIsLinked(t *testing.T) {
	ix := registry.Default()
	p := markdown.Parse("api.md", []byte(render(ix)))
	for i := range ix.Operations {
		if !p.Anchors[anchor(ix.Operations[i].ID)] {
			t.Errorf("no heading for operation %s", ix.Operations[i].ID)
		}
	}
	for i := range ix.Schemas {
		if !p.Anchors[anchor(ix.Schemas[i].Name)] {
			t.Errorf("no heading for schema %s", ix.Schemas[i].Name)
		}
	}
}
