// Package text makes text that came from somewhere else safe to show: server
// answers, ids, file contents. Everything that reaches a terminal passes
// through Line or Block; JSON does not need to, because it escapes by itself.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
)

// Line returns s as one line: control characters, line breaks and characters that
// reorder text are shown as escapes instead of being obeyed.
func Line(s string) string { return escape(s, false) }

// Block is Line for text of several lines: line feeds and tabs are kept.
func Block(s string) string { return escape(strings.ReplaceAll(s, "\r\n", "\n"), true) }

// Width returns the number of terminal cells of s, counting grapheme clusters.
func Width(s string) int { return lipgloss.Width(s) }

// Pad appends blanks to s until it is width cells wide.
func Pad(s string, width int) string {
	if gap := width - Width(s); gap > 0 {
		return s + strings.Repeat(" ", gap)
	}
	return s
}

func escape(s string, multiline bool) string {
	if strings.IndexFunc(s, func(r rune) bool { return unsafe(r, multiline) || r == utf8.RuneError }) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unsafe(r, multiline):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

// unsafe reports whether a terminal would act on r instead of showing it: C0 and
// C1 controls, line and paragraph separators, and the bidirectional controls that
// make text read differently from what it says.
func unsafe(r rune, multiline bool) bool {
	switch {
	case r == '\n' || r == '\t':
		return !multiline
	case unicode.IsControl(r), r == '\u2028', r == '\u2029', r == '\ufeff':
		return true
	case r == '\u200e' || r == '\u200f' || r == '\u061c':
		return true
	}
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
