package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

// printTable prints a list for a person: what it is, the rows, and what to do next.
func (a *App) printTable(p printing, o *list, rows []row, total int, cut *truncated) error {
	r := o.addr.Resource
	count := fmt.Sprintf("%d total", total)
	if cut != nil && cut.Shown > 0 {
		count += fmt.Sprintf(" · rows 1–%d", cut.Shown)
	}
	if err := a.print(p.style.Heading(title(r.Kind, o.cluster, strings.Join(o.addr.IDs, " "), count)) + "\n\n"); err != nil {
		return err
	}
	if err := output.WriteTable(a.Out, headings(o.fields), cells(o.fields, rows, output.Cell), p.style); err != nil {
		return err
	}
	if cut != nil {
		narrow := "this list has no filters"
		if keys := filterKeys(r); len(keys) > 0 {
			narrow = "narrow it with --filter " + strings.Join(keys, "|") + "=…"
		}
		if err := a.print(fmt.Sprintf("\n… %d more; %s; all of them: %s\n", cut.Total-cut.Shown, narrow, cut.Next)); err != nil {
			return err
		}
	}
	return a.print(footer(p.style, a.Index, o.page, r, a.listHints(o)))
}

// title joins what is not empty.
func title(parts ...string) string {
	var kept []string
	for _, part := range parts {
		if part = strings.TrimSpace(part); part != "" {
			kept = append(kept, text.Line(part))
		}
	}
	return strings.Join(kept, " · ")
}

// hint is a command to run next, and why.
type hint struct{ command, why string }

// listHints are the commands that a list leads to.
func (a *App) listHints(o *list) []hint {
	r, words, repeat := o.addr.Resource, quoteWords(o.addr.Words()), o.repeat
	if repeat == " --all-clusters" {
		repeat = " --cluster <cluster>"
	}
	var hints []hint
	if o.note != "" {
		hints = append(hints, hint{why: o.note})
	}
	id := "<" + r.Kind + ">"
	if r.Item != nil {
		hints = append(hints, hint{"abx " + words + " " + id + repeat, "one in full"})
	}
	for _, child := range r.Children {
		hints = append(hints, hint{"abx " + words + " " + id + " " + child + repeat, "its " + child})
	}
	for _, v := range r.Views {
		if v.Operation != "" {
			why := "its " + v.Name
			if v.Until != "" {
				why += ", until it ends"
			}
			hints = append(hints, hint{"abx " + words + " " + id + " " + v.Name + repeat, why})
		}
	}
	return append(hints, hint{"abx " + words + " --help", "columns, filters, writes"})
}

// itemHints are the commands that one object leads to.
func (a *App) itemHints(addr registry.Address, value any, repeat string) []hint {
	r, words := addr.Resource, quoteWords(addr.Words())
	var hints []hint
	for _, child := range r.Children {
		hints = append(hints, hint{"abx " + words + " " + child + repeat, "its " + child})
	}
	for _, v := range r.Views {
		ended := v.Until != "" && output.Plain(output.Lookup(value, v.Until)) != ""
		if v.Operation != "" && !ended {
			hints = append(hints, hint{"abx " + words + " " + v.Name + repeat, "its " + v.Name})
		}
	}
	if r.Item != nil && r.Item.Editable != "" && r.Verb("update") != nil {
		hints = append(hints, hint{"abx " + words + " --editable" + repeat, "the file that an update takes"})
	}
	return append(hints, hint{"abx " + words + " --help", "fields, writes"})
}

// footer says where the same can be seen, read about, and what comes next.
func footer(style output.Style, ix *registry.Index, page string, r *registry.Resource, hints []hint) string {
	var b strings.Builder
	b.WriteString("\n")
	if page != "" {
		b.WriteString(style.Dim("view:") + " " + text.Line(page) + "\n")
	}
	if url := docsURL(ix, r); url != "" {
		b.WriteString(style.Dim("read:") + " " + url + "\n")
	}
	width := 0
	for _, h := range hints {
		width = max(width, text.Width(text.Line(h.command)))
	}
	for _, h := range hints {
		if h.command == "" {
			b.WriteString(style.Dim("hint:") + " " + text.Line(h.why) + "\n")
			continue
		}
		command := text.Line(h.command)
		pad := strings.Repeat(" ", width-text.Width(command))
		b.WriteString(style.Dim("hint:") + " " + style.Command(command) + pad + style.Dim("  # "+h.why) + "\n")
	}
	return b.String()
}

func docsURL(ix *registry.Index, r *registry.Resource) string {
	if r.Docs == "" {
		return ""
	}
	return ix.DocsBase + r.Docs + ".md"
}

// detail is one object read, ready to be printed.
type detail struct {
	addr    registry.Address
	value   any
	tables  []*list // of children
	page    string
	cluster string // that answered, when a console was asked
	repeat  string // the flags that repeat the choice of a cluster
	note    string
}

// printDetail prints one object for a person.
func (a *App) printDetail(p printing, d *detail) error {
	r := d.addr.Resource
	if err := a.print(p.style.Heading(title(r.Kind, d.cluster, strings.Join(d.addr.IDs, " "))) + "\n\n"); err != nil {
		return err
	}
	if err := output.WritePairs(a.Out, pairs(r, d.value), p.style); err != nil {
		return err
	}
	for _, block := range r.Texts {
		if err := a.printText(p, block.ID, output.Plain(output.Lookup(d.value, block.Path))); err != nil {
			return err
		}
	}
	for _, child := range d.tables {
		heading := p.style.Heading(title(child.addr.Resource.Plural, fmt.Sprintf("%d total", child.total)))
		if err := a.print("\n" + heading + "\n"); err != nil {
			return err
		}
		if len(child.rows) == 0 {
			continue
		}
		if err := output.WriteTable(a.Out, headings(child.fields), cells(child.fields, child.rows, output.Cell), p.style); err != nil {
			return err
		}
	}
	hints := a.itemHints(d.addr, d.value, d.repeat)
	if d.note != "" {
		hints = append([]hint{{why: d.note}}, hints...)
	}
	return a.print(footer(p.style, a.Index, d.page, r, hints))
}

// pairs are the lines of a detail page: the detail fields, or the columns where there are none.
func pairs(r *registry.Resource, value any) []output.Pair {
	var lines []output.Pair
	for _, f := range r.Detail {
		lines = append(lines, output.Pair{Name: f.ID, Value: output.Cell(output.Lookup(value, f.Path))})
	}
	if len(lines) == 0 {
		for _, f := range columnFields(r, true) {
			lines = append(lines, output.Pair{Name: f.id, Value: output.Cell(f.get(row{value: value}))})
		}
	}
	return lines
}

func (a *App) printText(p printing, id, content string) error {
	if content == "" {
		return nil
	}
	heading := p.style.Heading(fmt.Sprintf("%s (%d characters)", id, utf8.RuneCountInString(content)))
	return a.print("\n" + heading + "\n\n" + strings.TrimRight(text.Block(content), "\n") + "\n")
}

func (a *App) print(s string) error {
	_, err := fmt.Fprint(a.Out, s)
	return err
}
