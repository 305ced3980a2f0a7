package text

import (
	"strings"
	"testing"
	"unicode"
)

func TestLine(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"},
		{"", ""},
		{"日本語 👩‍👩‍👧", "日本語 👩‍👩‍👧"},
		{"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"a\nb\tc\r", `a\nb\tc\r`},
		{"c1 \u009b2J", `c1 \x9b2J`},
		{"bidi \u202egpj.exe", `bidi \u202egpj.exe`},
		{"bad \xff utf8", `bad \xff utf8`},
	} {
		if got := Line(c.in); got != c.want {
			t.Errorf("Line(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestBlockKeepsLines(t *testing.T) {
	if got, want := Block("a\r\nb\n\tc\x07"), "a\nb\n\tc"+`\x07`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{"abc": 3, "日本": 4, "👍": 2, "👩‍👩‍👧": 2, "é": 1, "\x1b[1mx\x1b[0m": 1} {
		if got := Width(s); got != want {
			t.Errorf("Width(%q) = %d, want %d", s, got, want)
		}
	}
	if got := Pad("日", 4); got != "日  " {
		t.Errorf("Pad = %q", got)
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{"x", "\x1b]0;t\x07", "\xff\xfe", "\u202e", "a\nb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := Line(s)
		if strings.IndexFunc(out, unicode.IsControl) >= 0 {
			t.Errorf("control character left in %q", out)
		}
		if Line(out) != out {
			t.Errorf("not stable: %q", out)
		}
	})
}
