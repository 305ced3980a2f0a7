package output

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"navix.sh/agentbox/cli/clierr"
)

func decode(t *testing.T, s string) any {
	t.Helper()
	v, err := Decode([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLookup(t *testing.T) {
	v := decode(t, `{"a":{"b":{"c":1}},"metadata":{"quota.x/pool-type":"spot","y":{"z":2}},"list":[1]}`)
	for path, want := range map[string]string{
		"a.b.c": "1", `metadata["quota.x/pool-type"]`: "spot", `metadata["y"].z`: "2", "a.x.y": "", "list.a": "", "nope": "", `metadata["nope"]`: "",
	} {
		if got := Plain(Lookup(v, path)); got != want {
			t.Errorf("Lookup(%s) = %q, want %q", path, got, want)
		}
	}
	if Lookup(v, "") == nil {
		t.Error("the empty path is not the value")
	}
}

func TestCell(t *testing.T) {
	for in, want := range map[string]string{
		`null`: Missing, `""`: Missing, `[]`: Missing, `{}`: Missing, `0`: "0", `false`: "false",
		`12345678901234567890`: "12345678901234567890", `["a","b"]`: "a,b", `{"b":1,"a":{"x":"y"}}`: "a={x=y} b=1",
		`"a\nb"`: `a\nb`, `"\u001b[2J"`: `\x1b[2J`,
	} {
		if got := Cell(decode(t, in)); got != want {
			t.Errorf("Cell(%s) = %q, want %q", in, got, want)
		}
	}
}

func TestJSONIsExact(t *testing.T) {
	in := `{"amp":"a&b<c>","big":12345678901234567890,"float":1.10}`
	var b bytes.Buffer
	if err := WriteJSON(&b, decode(t, in)); err != nil || b.String() != in+"\n" {
		t.Errorf("got %s, %v", b.String(), err)
	}
	b.Reset()
	if err := WriteJSON(&b, "c1 \u009b bidi \u202e"); err != nil || b.String() != `"c1 \u009b bidi \u202e"`+"\n" {
		t.Errorf("got %q", b.String())
	}
}

func TestYAML(t *testing.T) {
	var b bytes.Buffer
	if err := WriteYAML(&b, decode(t, `{"n":9007199254740993,"s":"yes","e":"\ud83d\ude00","l":[1]}`)); err != nil {
		t.Fatal(err)
	}
	if want := "e: \"\\U0001F600\"\nl:\n- 1\n\"n\": 9007199254740993\ns: \"yes\"\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	if err := WriteCSV(&b, []string{"a", "b"}, [][]string{{`q"x`, ""}, {"l1\r\nl2", "e\x1b[m"}}); err != nil {
		t.Fatal(err)
	}
	if want := "a,b\n\"q\"\"x\",\n\"l1\nl2\",e\\x1b[m\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestTableAlignsCells(t *testing.T) {
	var b bytes.Buffer
	rows := [][]string{{"日本語", "x", "—"}, {"👩‍👩‍👧", "longer", ""}, {"abc", "y", "end"}}
	if err := WriteTable(&b, []string{"name", "b", "c"}, rows, Style{}); err != nil {
		t.Fatal(err)
	}
	want := "name    b       c\n日本語  x       —\n👩‍👩‍👧      longer\nabc     y       end\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestStyle(t *testing.T) {
	none := func(string) string { return "" }
	if s, err := NewStyle("auto", &bytes.Buffer{}, none); err != nil || s.Enabled {
		t.Error("colour without a terminal")
	}
	s, err := NewStyle("always", &bytes.Buffer{}, none)
	if err != nil || !strings.Contains(s.Heading("x"), "\x1b[1m") {
		t.Errorf("no colour although asked for: %q", s.Heading("x"))
	}
	if _, err := NewStyle("maybe", os.Stdout, none); clierr.From(err).Exit != 2 {
		t.Error(err)
	}
}

func TestQuery(t *testing.T) {
	q, err := ParseQuery(".items[] | .n + 0")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = q.Run(context.Background(), decode(t, `{"items":[{"n":12345678901234567890},{"n":2}]}`), func(v any) error {
		data, err := MarshalJSON(v)
		got = append(got, string(data))
		return err
	})
	if err != nil || strings.Join(got, " ") != "12345678901234567890 2" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := ParseQuery(".["); clierr.From(err).Exit != 2 {
		t.Error(err)
	}
	if q, err := ParseQuery("env | length"); err == nil {
		_ = q.Run(context.Background(), nil, func(v any) error {
			if Plain(v) != "0" {
				t.Errorf("the expression sees the environment: %v", v)
			}
			return nil
		})
	}
	q, _ = ParseQuery(".a")
	if err := q.Run(context.Background(), "text", func(any) error { return nil }); clierr.From(err).Code != clierr.QueryFailed {
		t.Error(err)
	}
}

func TestSortBy(t *testing.T) {
	rows := []any{decode(t, `10`), decode(t, `9`), nil, decode(t, `"b"`), decode(t, `"a"`), decode(t, `12345678901234567891`), decode(t, `12345678901234567890`)}
	SortBy(rows, func(v any) any { return v }, false)
	var got []string
	for _, r := range rows {
		got = append(got, Cell(r))
	}
	if want := "9 10 12345678901234567890 12345678901234567891 a b " + Missing; strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
	SortBy(rows, func(v any) any { return v }, true)
	if Cell(rows[len(rows)-1]) != Missing || Cell(rows[0]) != "b" {
		t.Errorf("descending: %v", rows)
	}
}
