package body

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/registry"
)

func ptr[T any](v T) *T { return &v }

// index is a registry with one schema of every kind, one of them recursive.
var index = &registry.Index{Schemas: []registry.Schema{
	{Name: "Body", Type: registry.TypeObject, Closed: true, Fields: []registry.Field{
		{Name: "name", Required: true, Schema: registry.Schema{Type: registry.TypeString, Pattern: "^[a-z]+$", Limits: &registry.Limits{MaxLength: ptr(5)}}},
		{Name: "mode", Schema: registry.Schema{Type: registry.TypeString, Enum: []string{"fast", "slow"}}},
		{Name: "size", Schema: registry.Schema{Type: registry.TypeInteger, Limits: &registry.Limits{Min: ptr(0.0), Max: ptr(10.0)}}},
		{Name: "on", Schema: registry.Schema{Type: registry.TypeBoolean, Nullable: true}},
		{Name: "at", Schema: registry.Schema{Type: registry.TypeString, Format: "date-time"}},
		{Name: "labels", Schema: registry.Schema{Type: registry.TypeMap, Elem: &registry.Schema{Type: registry.TypeString}}},
		{Name: "list", Schema: registry.Schema{Type: registry.TypeArray, Elem: &registry.Schema{Ref: "Node"}, Limits: &registry.Limits{MaxItems: ptr(2)}}},
		{Name: "either", Schema: registry.Schema{Type: registry.TypeOneOf, OneOf: []registry.Schema{{Type: registry.TypeString}, {Type: registry.TypeInteger}}}},
		{Name: "free", Schema: registry.Schema{Type: registry.TypeAny}},
	}},
	{Name: "Node", Type: registry.TypeObject, Fields: []registry.Field{{Name: "next", Schema: registry.Schema{Ref: "Node"}}}},
}}

func TestValidate(t *testing.T) {
	for _, c := range []struct{ body, says string }{
		{`{"name":"abc","mode":"fast","size":3,"on":null,"at":"2026-01-01T00:00:00Z","labels":{"a":"b"},"list":[{"next":{"next":{}}}],"either":1,"free":[1]}`, ""},
		{`{}`, "name is required"},
		{`{"name":1}`, "name is a number and must be a string"},
		{`{"name":"ABC"}`, "must match ^[a-z]+$"},
		{`{"name":"abcdef"}`, "takes at most 5"},
		{`{"name":"a","mode":"fats"}`, `"fats", which is none of fast, slow`},
		{`{"name":"a","size":1.5}`, "whole number"},
		{`{"name":"a","size":-1}`, "at least 0"},
		{`{"name":"a","size":11}`, "at most 10"},
		{`{"name":"a","size":1e999999999}`, "out of range"},
		{`{"name":"a","size":"1"}`, "must be a number"},
		{`{"name":"a","on":"yes"}`, "true or false"},
		{`{"name":"a","at":"tomorrow"}`, "must be a time"},
		{`{"name":"a","labels":{"x":1}}`, "labels.x is a number"},
		{`{"name":"a","list":[{},{},{}]}`, "at most 2"},
		{`{"name":"a","list":[{"next":{"next":3}}]}`, "list[0].next.next is a number"},
		{`{"name":"a","either":[]}`, "none of its 2 forms"},
		{`{"name":null}`, "name is null"},
		{`{"nmae":"a"}`, "nmae does not exist"},
	} {
		value, err := parse("x", []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		err = Validate(index, "Body", value)
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", c.body, err)
			}
			continue
		}
		if e := clierr.From(err); err == nil || e.Code != clierr.InvalidBody || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.says)
		}
	}
}

func TestUnknownKeysAreSuggested(t *testing.T) {
	e := clierr.From(Validate(index, "Body", map[string]any{"name": "a", "lables": nil}))
	if e.Suggestion != "labels" || len(e.Valid) == 0 {
		t.Errorf("got %+v", e)
	}
}

func TestLoad(t *testing.T) {
	for in, want := range map[string]string{
		`{"big": 12345678901234567890}`: "big=12345678901234567890",
		"a: 1\nb: [x, y]\n":             "",
		"{a: b}":                        "",
		"\xef\xbb\xbf{\"a\":1}":         "",
	} {
		if got, err := Load("-", strings.NewReader(in)); err != nil || len(got) == 0 {
			t.Errorf("Load(%q) = %v, %v (%s)", in, got, err, want)
		}
	}
	for in, says := range map[string]string{
		"":              "is empty",
		"[1]":           "a list and not an object",
		"plain":         "a string and not an object",
		"{\n\"a\": ,\n": "line 2",
		"a: 1\na: 2":    "already set",
		"a: 1\n---\nb":  "several YAML documents",
		`{"a":1} {}`:    "more follows",
		`{"a":1,"a":2}`: "has a twice",
		`{"a":[{"b":{}},{"b":{"c":1,"d":[],"c":null}}]}`: "has a[1].b.c twice",
	} {
		_, err := Load("-", strings.NewReader(in))
		if e := clierr.From(err); err == nil || e.Code != clierr.InvalidBody || !strings.Contains(e.Message, says) {
			t.Errorf("Load(%q) = %v, want %q", in, err, says)
		}
	}
	for in, want := range map[string]string{
		`{"a":1e3}`: "1000", `{"a":3.0}`: "3", `{"a":-2.50E1}`: "-25", `{"a":1.5}`: "1.5", `{"a":1e-2}`: "1e-2",
		`{"a":1e999999999}`: "1e999999999", `{"a":0.99999999999999999999999999999999999999999}`: "0.99999999999999999999999999999999999999999",
	} {
		if got, err := Load("-", strings.NewReader(in)); err != nil || got["a"] != json.Number(want) {
			t.Errorf("Load(%s) = %v, %v", in, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "b.yaml")
	if _, err := Load(path, nil); clierr.From(err).Exit != 2 {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("name: x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path, nil); err != nil || got["name"] != "x" {
		t.Error(got, err)
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{`{"name":"a","list":[{}]}`, "name: a\nsize: 3", "a: &x [*x]", "{", "? a", "a: .inf", "size: 1e99999"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		if v, err := parse("x", []byte(s)); err == nil {
			_ = Validate(index, "Body", v)
		}
	})
}
