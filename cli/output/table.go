package output

import (
	"io"
	"strings"

	"navix.sh/agentbox/cli/text"
)

// WriteTable writes aligned columns, two blanks apart, without frame, wrapping or
// trailing blanks, so that grep and cut work on it. Cells are written as they are:
// Cell makes them safe. Widths are those of grapheme clusters, whatever the locale.
func WriteTable(w io.Writer, heading []string, rows [][]string, style Style) error {
	widths := make([]int, len(heading))
	for _, row := range append([][]string{heading}, rows...) {
		for i := range widths {
			widths[i] = max(widths[i], text.Width(row[i]))
		}
	}
	line := func(row []string) string {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(text.Pad(cell, widths[i]+2))
		}
		return strings.TrimRight(b.String(), " ")
	}
	var out strings.Builder
	out.WriteString(style.Heading(line(heading)) + "\n")
	for _, row := range rows {
		out.WriteString(line(row) + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Pair is a name and a value of a detail page.
type Pair struct{ Name, Value string }

// WritePairs writes one line for each pair, values aligned.
func WritePairs(w io.Writer, pairs []Pair, style Style) error {
	width := 0
	for _, p := range pairs {
		width = max(width, text.Width(p.Name))
	}
	var out strings.Builder
	for _, p := range pairs {
		out.WriteString(strings.TrimRight(style.Heading(text.Pad(p.Name, width))+"  "+p.Value, " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}
