package compile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"navix.sh/agentbox/registry"
	"navix.sh/agentbox/registry/compile"
)

func compiled(t *testing.T, name string) *registry.Index {
	t.Helper()
	ix, err := compile.Compile(name, read(t, "testdata/ok/"+name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compile.Print(ix); err != nil {
		t.Fatalf("the index prints to no Go source: %v", err)
	}
	return ix
}

func ptr[T any](v T) *T { return &v }

// fieldOf returns the schema of a property without its description.
func fieldOf(t *testing.T, ix *registry.Index, component, field string) registry.Schema {
	t.Helper()
	s := ix.Schema(component)
	if s == nil || s.Field(field) == nil {
		t.Fatalf("no %s.%s", component, field)
	}
	out := s.Field(field).Schema
	out.Describe = ""
	return out
}

func check(t *testing.T, what string, got, want registry.Schema) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestRecursiveSchema(t *testing.T) {
	ix := compiled(t, "recursive.yaml")
	tree := registry.Schema{Ref: "Tree"}
	check(t, "children", fieldOf(t, ix, "Tree", "children"), registry.Schema{Type: "array", Elem: &tree})
	check(t, "parent", fieldOf(t, ix, "Tree", "parent"), tree)
	check(t, "elements of Nest", *ix.Schema("Nest").Elem, registry.Schema{Ref: "Nest"})
	check(t, "pong", fieldOf(t, ix, "Ping", "pong"), registry.Schema{Ref: "Pong"})
	if got := ix.Deref(&tree); got == nil || got.Name != "Tree" {
		t.Errorf("Deref(Tree) = %v", got)
	}
}

func TestAllOf(t *testing.T) {
	ix := compiled(t, "allof.yaml")
	for component, required := range map[string]map[string]bool{
		"Base":    {"a": true, "b": false},
		"Derived": {"a": true, "b": true},
		"Wider":   {"a": true, "b": true, "c": true},
		"Alias":   {"a": true, "b": false},
	} {
		s := ix.Schema(component)
		if s.Type != registry.TypeObject || !s.Closed || len(s.Fields) != len(required) {
			t.Errorf("%s = %+v", component, s)
		}
		for name, want := range required {
			if f := s.Field(name); f == nil || f.Required != want {
				t.Errorf("%s.%s = %+v, want required %v", component, name, f, want)
			}
		}
	}
	holder := ix.Schema("Holder").Field("one").Schema
	check(t, "a reference that is described again", holder, registry.Schema{Ref: "Derived", Describe: "Described again."})
}

func TestOneOf(t *testing.T) {
	ix := compiled(t, "oneof.yaml")
	if pet := ix.Schema("Pet"); pet.Type != registry.TypeOneOf || len(pet.OneOf) != 2 || pet.OneOf[0].Ref != "Cat" {
		t.Errorf("Pet = %+v", pet)
	}
	check(t, "max", fieldOf(t, ix, "Size", "max"), registry.Schema{Type: registry.TypeOneOf, Default: `"20%"`, OneOf: []registry.Schema{
		{Type: "integer", Limits: &registry.Limits{Min: ptr(0.0)}}, {Type: "string", Pattern: "^[0-9]+%$"},
	}})
	check(t, "a union of one", fieldOf(t, ix, "Size", "pet"), registry.Schema{Ref: "Pet"})
}

func TestNullable(t *testing.T) {
	ix := compiled(t, "nullable.yaml")
	check(t, "plain", fieldOf(t, ix, "Values", "plain"), registry.Schema{Type: "string", Nullable: true})
	check(t, "union", fieldOf(t, ix, "Values", "union"), registry.Schema{Ref: "Leaf", Nullable: true})
	check(t, "either", fieldOf(t, ix, "Values", "either"), registry.Schema{Type: "string", Nullable: true, Limits: &registry.Limits{MaxLength: ptr(5)}})
	check(t, "set", fieldOf(t, ix, "Values", "set"), registry.Schema{Type: "string", Nullable: true, Enum: []string{"a", "b"}})
	check(t, "leaf", fieldOf(t, ix, "Values", "leaf"), registry.Schema{Ref: "Leaf", Nullable: true})
}

func TestEnumOnArray(t *testing.T) {
	ix := compiled(t, "arrayenum.yaml")
	color := registry.Schema{Type: "string", Describe: "A color.", Enum: []string{"red", "green"}}
	check(t, "colors", fieldOf(t, ix, "Palette", "colors"), registry.Schema{Type: "array", Elem: &color, Limits: &registry.Limits{MinItems: ptr(1), MaxItems: ptr(3)}})
	check(t, "sizes", fieldOf(t, ix, "Palette", "sizes"), registry.Schema{Type: "array", Elem: &registry.Schema{Type: "integer", Enum: []string{"1", "2"}}})
	check(t, "byName", fieldOf(t, ix, "Palette", "byName"), registry.Schema{Type: "map", Elem: &color})
	if mixed := fieldOf(t, ix, "Palette", "mixed"); mixed.Type != "object" || mixed.Field("known") == nil || mixed.Elem == nil {
		t.Errorf("mixed = %+v, want an object with a field and further keys", mixed)
	}
}

func TestParametersInAnyOrder(t *testing.T) {
	op := compiled(t, "params.yaml").Operation("GetDeep")
	var names []string
	for _, p := range op.PathParams {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"first", "second", "third"}, names); diff != "" {
		t.Errorf("path parameters (-want +got):\n%s", diff)
	}
	if len(op.Query) != 1 || op.Query[0].Describe != "From the operation." || *op.Query[0].Schema.Limits.Max != 7 {
		t.Errorf("query = %+v, want the operation's limit once", op.Query)
	}
	if len(op.Headers) != 1 {
		t.Errorf("headers = %+v, want the one that shares the name", op.Headers)
	}
}
