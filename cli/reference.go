package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// Page is one page of the command reference.
type Page struct {
	Name     string // file name without extension, e.g. abx-create-envs
	Markdown string
	Man      string // roff, section 1
}

// Reference returns the pages of the command reference: the root, every other
// command, every resource, and every write of a resource.
func (a *App) Reference() ([]Page, error) {
	root := a.Command()
	type target struct {
		cmd   *cobra.Command
		words []string
	}
	targets := []target{{root, nil}}
	for _, cmd := range root.Commands() {
		if cmd.Hidden {
			continue
		}
		targets = append(targets, target{cmd, nil})
		for _, sub := range cmd.Commands() {
			targets = append(targets, target{sub, nil})
		}
	}
	for i := range a.Index.Resources {
		r := &a.Index.Resources[i]
		words := []string{r.Plural}
		if r.Parent != "" {
			parent := a.Index.Find(r.Parent)
			words = []string{parent.Plural, "<" + parent.Kind + ">", r.Plural}
			cmd, rest, err := root.Find(words)
			if err != nil {
				return nil, err
			}
			targets = append(targets, target{cmd, rest})
		}
		for _, v := range r.Verbs {
			cmd, rest, err := root.Find(append([]string{v.Name}, words...))
			if err != nil {
				return nil, err
			}
			targets = append(targets, target{cmd, rest})
		}
	}
	var pages []Page
	for _, t := range targets {
		h, err := a.page(t.cmd, t.words)
		if err != nil {
			return nil, err
		}
		name := strings.ReplaceAll(t.cmd.CommandPath(), " ", "-")
		for _, w := range t.words {
			if !strings.HasPrefix(w, "<") {
				name += "-" + w
			}
		}
		pages = append(pages, Page{name, h.markdown(), h.man(name)})
	}
	return pages, nil
}

// markdown writes the page for a site.
func (h *helpPage) markdown() string {
	var b strings.Builder
	b.WriteString("# " + h.name + "\n\n" + markdownText(h.summary) + ".\n")
	for _, bl := range h.blocks {
		b.WriteString("\n")
		switch bl.kind {
		case blockParagraph:
			b.WriteString(markdownText(bl.text) + "\n")
		case blockSection:
			b.WriteString("## " + bl.text + "\n")
		case blockEntries:
			b.WriteString("| | |\n|---|---|\n")
			for _, e := range bl.entries {
				cell := strings.ReplaceAll(markdownText(e.about), "\n", " ")
				b.WriteString("| `" + strings.ReplaceAll(strings.TrimSpace(e.name), "|", `\|`) + "` | " + strings.ReplaceAll(cell, "|", `\|`) + " |\n")
			}
		case blockLines:
			b.WriteString("```text\n" + strings.Join(bl.lines, "\n") + "\n```\n")
		case blockCommands:
			b.WriteString("```sh\n" + strings.Join(bl.lines, "\n") + "\n```\n")
		}
	}
	return b.String()
}

// markdownText keeps placeholders from being read as HTML.
func markdownText(s string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "*", `\*`).Replace(s)
}

// man writes the page as roff.
func (h *helpPage) man(name string) string {
	var b strings.Builder
	b.WriteString(".TH " + strings.ToUpper(name) + " 1 \"\" \"abx\" \"abx manual\"\n")
	b.WriteString(".SH NAME\n" + roff(name) + ` \- ` + roff(h.summary) + "\n.SH DESCRIPTION\n")
	for _, bl := range h.blocks {
		switch bl.kind {
		case blockParagraph:
			b.WriteString(".PP\n" + roff(bl.text) + "\n")
		case blockSection:
			b.WriteString(".SH " + roff(strings.ToUpper(bl.text)) + "\n")
		case blockEntries:
			for _, e := range bl.entries {
				b.WriteString(".TP\n" + `\fB` + roff(strings.TrimSpace(e.name)) + `\fR` + "\n" + roff(e.about) + "\n")
			}
		case blockLines, blockCommands:
			b.WriteString(".nf\n")
			for _, l := range bl.lines {
				b.WriteString(roff(l) + "\n")
			}
			b.WriteString(".fi\n")
		}
	}
	return b.String()
}

// roff escapes what troff would read as a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
