// Package markdown reads the project's own pages, so that tests can hold them to the product: their code blocks, links
// and headings, and the command lines in them.
package markdown

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
	"mvdan.cc/sh/v3/syntax"
)

// Page is what stands in one Markdown file.
type Page struct {
	Path   string
	Blocks []Block
	// Spans are the texts in `backquotes`.
	Spans []Span
	Links []Link
	// Anchors are the names of the headings, as GitHub makes them.
	Anchors map[string]bool
}

// Block is a fenced block of code.
type Block struct {
	Line     int
	Language string
	Text     string
	// NotRun is the reason in `<!-- not run: reason -->` before the block; empty when there is none.
	NotRun string
}

// Span is a text in backquotes.
type Span struct {
	Line int
	Text string
}

// Link is a link or an image.
type Link struct {
	Line   int
	Target string
}

// notRun begins the comment that keeps a block from being executed.
const notRun = "<!-- not run: "

// Read parses a file.
func Read(path string) (*Page, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, source), nil
}

// Parse reads the text of a page.
func Parse(path string, source []byte) *Page {
	p := &Page{Path: path, Anchors: map[string]bool{}}
	root := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function below never fails
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			p.Blocks = append(p.Blocks, Block{Line: lineOf(source, n), Language: string(n.Language(source)), Text: lines(n, source), NotRun: reason(n, source)})
		case *ast.CodeSpan:
			p.Spans = append(p.Spans, Span{lineOf(source, n), plain(n, source)})
		case *ast.Link:
			p.Links = append(p.Links, Link{lineOf(source, n), string(n.Destination)})
		case *ast.Image:
			p.Links = append(p.Links, Link{lineOf(source, n), string(n.Destination)})
		case *ast.Heading:
			p.addAnchor(plain(n, source))
		}
		return ast.WalkContinue, nil
	})
	return p
}

// addAnchor names a heading as GitHub does: lower case, words joined by dashes, a number when the name is taken.
func (p *Page) addAnchor(heading string) {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	unique := name
	for n := 1; p.Anchors[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", name, n)
	}
	p.Anchors[unique] = true
}

func lines(n ast.Node, source []byte) string {
	var b strings.Builder
	for i := range n.Lines().Len() {
		segment := n.Lines().At(i)
		b.Write(segment.Value(source))
	}
	return b.String()
}

// reason reads the comment before a block.
func reason(n ast.Node, source []byte) string {
	html, ok := n.PreviousSibling().(*ast.HTMLBlock)
	if !ok {
		return ""
	}
	why, ok := strings.CutPrefix(strings.TrimSpace(lines(html, source)), notRun)
	if !ok {
		return ""
	}
	return strings.TrimSpace(strings.TrimSuffix(why, "-->"))
}

// plain is the text of a node without its markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function below never fails
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// lineOf is the line, from 1, where a node's text begins.
func lineOf(source []byte, n ast.Node) int {
	at := -1
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function below never fails
		switch t := n.(type) {
		case *ast.Text:
			at = t.Segment.Start
		default:
			if n.Type() != ast.TypeInline && n.Lines().Len() > 0 {
				at = n.Lines().At(0).Start
			}
		}
		if at >= 0 {
			return ast.WalkStop, nil
		}
		return ast.WalkContinue, nil
	})
	if at < 0 {
		return 0
	}
	return strings.Count(string(source[:at]), "\n") + 1
}

// Command is one simple command of a shell text, its words with quotes removed.
type Command struct {
	Line  int // within the text, from 1
	Words []string
}

// Commands returns every call of program in a shell text: in pipes, lists and substitutions too. A word that the shell
// would expand stands as it is written.
func Commands(shell, program string) ([]Command, error) {
	file, err := syntax.NewParser(syntax.KeepComments(false)).Parse(strings.NewReader(shell), "")
	if err != nil {
		return nil, err
	}
	var found []Command
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		words := make([]string, len(call.Args))
		for i, w := range call.Args {
			words[i] = word(w)
		}
		if words[0] == program || strings.HasSuffix(words[0], "/"+program) {
			found = append(found, Command{Line: int(call.Pos().Line()), Words: words})
		}
		return true
	})
	return found, nil
}

// word removes the quotes of a word.
func word(w *syntax.Word) string {
	var b strings.Builder
	var parts func(list []syntax.WordPart)
	parts = func(list []syntax.WordPart) {
		for _, part := range list {
			switch part := part.(type) {
			case *syntax.Lit:
				b.WriteString(strings.ReplaceAll(part.Value, `\`, ""))
			case *syntax.SglQuoted:
				b.WriteString(part.Value)
			case *syntax.DblQuoted:
				parts(part.Parts)
			default:
				_ = syntax.NewPrinter().Print(&b, part)
			}
		}
	}
	parts(w.Parts)
	return b.String()
}
