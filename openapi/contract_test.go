package openapi_test

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"navix.sh/agentbox/openapi"
	"navix.sh/agentbox/registry"
	"navix.sh/agentbox/registry/compile"
)

// rows reads a word table, without comments.
func rows(t *testing.T, path string) [][]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for _, line := range strings.Split(string(data), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, strings.Fields(line))
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s holds no rows", path)
	}
	return out
}

func index(t *testing.T) *registry.Index {
	t.Helper()
	ix, err := compile.Compile("native.yaml", openapi.Native)
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// TestBaseOperations holds the document to the routes that deployed clients and
// servers speak.
func TestBaseOperations(t *testing.T) {
	ix := index(t)
	for _, row := range rows(t, "testdata/operations.txt") {
		method, path, id, body, status, answer := row[0], row[1], row[2], row[3], row[4], row[5]
		op := ix.Operation(id)
		if op == nil {
			t.Errorf("%s is gone", id)
			continue
		}
		if op.Method != method || op.Path != path {
			t.Errorf("%s is %s %s, not %s %s", id, op.Method, op.Path, method, path)
		}
		if op.Request == nil && body != "-" || op.Request != nil && op.Request.Schema != body {
			t.Errorf("%s takes %+v, not %s", id, op.Request, body)
		}
		code, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		r := op.Response(code)
		found := r != nil && (r.Schema == answer || answer == "-" && r.Schema == "")
		if !found {
			t.Errorf("%s does not answer %s %s", id, status, answer)
		}
	}
}

// TestBaseFields holds the schemas to the fields that deployed clients and servers speak.
func TestBaseFields(t *testing.T) {
	ix := index(t)
	for _, row := range rows(t, "testdata/fields.txt") {
		s := ix.Schema(row[0])
		if s == nil {
			t.Errorf("schema %s is gone", row[0])
			continue
		}
		for _, name := range row[1:] {
			if s.Field(name) == nil {
				t.Errorf("%s.%s is gone", row[0], name)
			}
		}
	}
	if keys := ix.Schema("ListAPIKeysResult"); keys.Type != registry.TypeArray {
		t.Errorf("ListAPIKeysResult is a %s, not a bare array", keys.Type)
	}
}

// example returns the first example of the answer of success.
func example(t *testing.T, doc *openapi3.T, op *registry.Operation) any {
	t.Helper()
	r := doc.Paths.Value(op.Path).GetOperation(op.Method).Responses.Status(op.Success().Status)
	media := r.Value.Content["application/json"]
	if media.Example != nil {
		return media.Example
	}
	return media.Examples["done"].Value.Value
}

// TestExamplesAgree holds the examples to one story: what a list shows of an object is
// what a read of it shows.
func TestExamplesAgree(t *testing.T) {
	doc, ix := load(t), index(t)
	for i := range ix.Resources {
		r := &ix.Resources[i]
		if r.List == nil || r.Item == nil || r.List.ID == "" {
			continue
		}
		list, ok := registry.Lookup(example(t, doc, ix.Operation(r.List.Operation)), r.List.Rows)
		if !ok || len(list.([]any)) == 0 {
			t.Errorf("%s: the example of the list is empty", r.Plural)
			continue
		}
		row := list.([]any)[0].(map[string]any)
		item := example(t, doc, ix.Operation(r.Item.Operation)).(map[string]any)
		if r.Item.Unwrap != "" {
			item = item[r.Item.Unwrap].(map[string]any)
		}
		if r.Kind == "approval" { // the read shows the request after its decision
			item["status"] = row["status"]
		}
		for name, value := range row {
			if other, ok := item[name]; ok && !reflect.DeepEqual(value, other) {
				t.Errorf("%s.%s is %v in the list and %v in the read", r.Kind, name, value, other)
			}
		}
	}
}

// TestServersAreRelative: the document is served by every deployment and names none.
func TestServersAreRelative(t *testing.T) {
	for _, s := range load(t).Servers {
		if !strings.HasPrefix(s.URL, "/") {
			t.Errorf("server %s is not relative", s.URL)
		}
	}
}
