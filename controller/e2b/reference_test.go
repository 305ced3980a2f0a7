package e2b

import (
	"strings"
	"testing"
)

func TestParseReference(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Reference
		bad  string
	}{
		{in: "default", want: Reference{Name: "default"}},
		{in: "  default ", want: Reference{Name: "default"}},
		{in: "env//ubuntu:24.04", want: Reference{Name: "env", Image: "ubuntu:24.04"}},
		{in: "c1::env", want: Reference{Cluster: "c1", Name: "env"}},
		{in: "c1 :: env // host:5000/a/b@sha256:00 ", want: Reference{Cluster: "c1", Name: "env", Image: "host:5000/a/b@sha256:00"}},
		{in: "::env", want: Reference{Name: "env"}},
		{in: "env//", want: Reference{Name: "env"}},
		{in: "env//host//path", want: Reference{Name: "env", Image: "host//path"}},
		{in: "env//a::b", want: Reference{Name: "env", Image: "a::b"}},
		{in: "env-v2.1", want: Reference{Name: "env-v2.1"}},
		{in: "", bad: "names no environment"},
		{in: "c1::", bad: "names no environment"},
		{in: "//image", bad: "names no environment"},
		{in: "team/env", bad: "is not a name"},
		{in: "env:tag", bad: "is not a name"},
		{in: "a::b::c", bad: "is not a name"},
		{in: "Env", bad: "is not a name"},
		{in: "C::env", bad: "is not a cluster id"},
		{in: "env//a b", bad: "is not an image"},
		{in: "env///abs", bad: "is not an image"},
		{in: strings.Repeat("a", 64), bad: "is not a name"},
		{in: strings.Repeat("a", 2000), bad: "bytes"},
	} {
		got, err := ParseReference(tc.in)
		switch {
		case tc.bad == "" && err != nil:
			t.Errorf("ParseReference(%q): %v", tc.in, err)
		case tc.bad == "" && got != tc.want:
			t.Errorf("ParseReference(%q) = %+v, want %+v", tc.in, got, tc.want)
		case tc.bad != "" && (err == nil || !strings.Contains(err.Error(), tc.bad)):
			t.Errorf("ParseReference(%q) = %+v, %v; want an error with %q", tc.in, got, err, tc.bad)
		}
	}
}

func FuzzParseReference(f *testing.F) {
	for _, s := range []string{"default", "c::e//i", "::e", "e//", "::", "//", "a::b::c", " a :: b // c ", "\x00", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := ParseReference(s)
		if err != nil {
			return
		}
		again, err := ParseReference(ref.String())
		if err != nil || again != ref {
			t.Fatalf("ParseReference(%q) = %+v; its spelling %q parses to %+v, %v", s, ref, ref.String(), again, err)
		}
	})
}
