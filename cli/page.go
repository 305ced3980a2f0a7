package cli

import (
	"strings"

	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
)

// helpWidth is the column at which help text is wrapped.
const helpWidth = 100

// helpPage is one page of help as blocks. It is shown on a terminal, and written as
// Markdown and as a man page (reference.go), so that the three cannot differ.
type helpPage struct {
	name, summary string
	blocks        []block
}

type blockKind int

const (
	blockParagraph blockKind = iota
	blockSection
	blockEntries
	blockLines
	blockCommands
)

type block struct {
	kind    blockKind
	text    string
	lines   []string
	entries []entry
}

// entry is a name and what it is.
type entry struct{ name, about string }

func (h *helpPage) title(name, summary string) {
	h.name, h.summary = name, strings.TrimSuffix(summary, ".")
}

func (h *helpPage) paragraph(content string) {
	if content = strings.TrimSpace(content); content != "" {
		h.blocks = append(h.blocks, block{kind: blockParagraph, text: content})
	}
}

func (h *helpPage) section(name string) {
	h.blocks = append(h.blocks, block{kind: blockSection, text: name})
}

func (h *helpPage) entries(list []entry) {
	h.blocks = append(h.blocks, block{kind: blockEntries, entries: list})
}

func (h *helpPage) lines(lines ...string) {
	h.blocks = append(h.blocks, block{kind: blockLines, lines: lines})
}

// commands adds lines to run; what follows " # " explains them.
func (h *helpPage) commands(lines []string) {
	h.blocks = append(h.blocks, block{kind: blockCommands, lines: lines})
}

// render writes the page for a terminal.
func (h *helpPage) render(style output.Style) string {
	var b strings.Builder
	b.WriteString(style.Heading(h.name) + " — " + h.summary + "\n")
	for _, bl := range h.blocks {
		switch bl.kind {
		case blockParagraph:
			b.WriteString("\n")
			for part := range strings.SplitSeq(bl.text, "\n") {
				b.WriteString(wrap(part, "", helpWidth) + "\n")
			}
		case blockSection:
			b.WriteString("\n" + style.Heading(bl.text) + "\n")
		case blockEntries:
			renderEntries(&b, bl.entries)
		case blockLines:
			for _, l := range bl.lines {
				b.WriteString("  " + wrap(l, "  ", helpWidth) + "\n")
			}
		case blockCommands:
			renderCommands(&b, bl.lines, style)
		}
	}
	return b.String()
}

func renderEntries(b *strings.Builder, list []entry) {
	width := 0
	for _, e := range list {
		if w := text.Width(e.name); w <= 36 {
			width = max(width, w)
		}
	}
	for _, e := range list {
		indent := strings.Repeat(" ", width+4)
		about := wrap(e.about, indent, helpWidth)
		switch {
		case about == "":
			b.WriteString("  " + e.name + "\n")
		case text.Width(e.name) > width:
			b.WriteString("  " + e.name + "\n" + indent + about + "\n")
		default:
			b.WriteString("  " + text.Pad(e.name, width) + "  " + about + "\n")
		}
	}
}

func renderCommands(b *strings.Builder, lines []string, style output.Style) {
	width := 0
	for _, l := range lines {
		command, _, _ := strings.Cut(l, " # ")
		if w := text.Width(command); w <= 60 {
			width = max(width, w)
		}
	}
	for _, l := range lines {
		command, why, explained := strings.Cut(l, " # ")
		line := style.Command(command)
		if explained {
			line += strings.Repeat(" ", max(0, width-text.Width(command))) + style.Dim("  # "+why)
		}
		b.WriteString("  " + line + "\n")
	}
}

// wrap breaks a paragraph at blanks so that no line is wider than width, which
// counts the indent that every line but the first gets.
func wrap(s, indent string, width int) string {
	room := width - text.Width(indent)
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && text.Width(line)+1+text.Width(word) > room {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"+indent)
}
