package compile_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"navix.sh/agentbox/registry"
	"navix.sh/agentbox/registry/compile"
)

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestIndexIsCurrent regenerates the index and compares it with what the program carries.
func TestIndexIsCurrent(t *testing.T) {
	ix, err := compile.Compile("openapi/native.yaml", read(t, "../../openapi/native.yaml"))
	if err != nil {
		t.Fatalf("the document does not compile:\n%v", err)
	}
	source, err := compile.Print(ix)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(source, read(t, "../index_gen.go")) {
		t.Fatal("registry/index_gen.go is older than openapi/native.yaml: run go generate ./registry")
	}
}

func TestBaseCompiles(t *testing.T) {
	ix, err := compile.Compile("base.yaml", read(t, "testdata/base.yaml"))
	if err != nil {
		t.Fatalf("the base of the failure cases does not compile:\n%v", err)
	}
	things := ix.Find("things")
	if got := things.Filter("color").Values; len(got) != 2 {
		t.Errorf("closed set of color = %v, want the two members of the enum", got)
	}
	if c := things.Column("zone"); c == nil || c.Path != `labels["example.com/zone"]` || c.Type != registry.TypeString {
		t.Errorf("column zone = %+v", c)
	}
	body := ix.Schema("ThingBody")
	if !body.Closed || !body.Field("color").Fixed || body.Field("color").Lever != "make another thing" {
		t.Errorf("ThingBody = %+v", body)
	}
	update := ix.Operation("UpdateThing")
	if r := update.Success(); r.Schema != "ThingEnvelope" || !r.DryRun {
		t.Errorf("answer of UpdateThing = %+v", r)
	}
	if parts := ix.Find("parts"); !parts.List.Scalar || things.Children[0] != "parts" {
		t.Errorf("parts = %+v, children of things = %v", parts.List, things.Children)
	}
}

var position = regexp.MustCompile(`^base\.yaml:(\d+): `)

// TestFailures changes one thing in the base document and expects the message that
// names it, on the line marked "# here" where there is such a mark and on the first
// changed line otherwise (a removed line's problem is reported where it belongs).
func TestFailures(t *testing.T) {
	base := string(read(t, "testdata/base.yaml"))
	files, _ := filepath.Glob("testdata/fail/*.txtar")
	if len(files) == 0 {
		t.Fatal("no cases")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			parts := map[string]string{}
			for _, f := range txtar.Parse(read(t, file)).Files {
				parts[f.Name] = strings.TrimSuffix(string(f.Data), "\n")
			}
			if strings.Count(base, parts["replace"]) == 0 {
				t.Fatalf("the base has no %q", parts["replace"])
			}
			doc := strings.Replace(base, parts["replace"], parts["with"], 1)
			ix, err := compile.Compile("base.yaml", []byte(doc))
			if err == nil {
				t.Fatalf("compiled to %d resources; want an error with %q", len(ix.Resources), parts["want"])
			}
			for _, line := range strings.Split(err.Error(), "\n") {
				if !position.MatchString(line) {
					t.Errorf("%q does not begin with file and line", line)
				}
				if !strings.Contains(line, parts["want"]) {
					continue
				}
				if at := strings.Index(doc, "# here"); at >= 0 {
					want := fmt.Sprintf("base.yaml:%d: ", 1+strings.Count(doc[:at], "\n"))
					if !strings.HasPrefix(line, want) {
						t.Errorf("%q is not on the marked line %s", line, want)
					}
				}
				return
			}
			t.Errorf("want an error with %q, got:\n%v", parts["want"], err)
		})
	}
}

// FuzzCompile: no document makes the compiler panic or hang, and what compiles prints.
func FuzzCompile(f *testing.F) {
	files, _ := filepath.Glob("testdata/ok/*.yaml")
	for _, file := range append(files, "testdata/base.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("tags: [{name: x, x-abx: {list: {operation: y}}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ix, err := compile.Compile("fuzz.yaml", data)
		if err != nil {
			return
		}
		if _, err := compile.Print(ix); err != nil {
			t.Fatalf("compiles and does not print: %v", err)
		}
	})
}
