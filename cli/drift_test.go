package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/cli"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/internal/markdown"
	"navix.sh/agentbox/registry"
)

// The skills and the documentation may name nothing that abx lacks. Every command line in them is run by abx itself
// against an address where nobody listens: abx checks grammar, flags, filters, fields, bodies and closed sets before it
// connects, so a line is good when it is done (local commands) or when only the address is missing.

// writtenLine is one command line of a page.
type writtenLine struct {
	at      string // file:line
	words   []string
	mention bool   // in running text, where a command may stand without its address
	refusal string // what a transcript shows on standard error; empty when the command is done
}

func (l writtenLine) String() string { return l.at + ": " + strings.Join(l.words, " ") }

// pagesOf finds Markdown files below the repository.
func pagesOf(t *testing.T, patterns ...string) []*markdown.Page {
	t.Helper()
	var pages []*markdown.Page
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no pages match %s (%v)", pattern, err)
		}
		for _, path := range paths {
			p, err := markdown.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, p)
		}
	}
	return pages
}

func skillPages(t *testing.T) []*markdown.Page { return pagesOf(t, "skills/dist/*/SKILL.md") }
func docPages(t *testing.T) []*markdown.Page {
	return pagesOf(t, "docs/*.md", "README.md", "plugin/README.md")
}

// placeholder is what running text writes for a name.
var placeholder = regexp.MustCompile(`<[a-z][a-z -]*>`)

// writtenLines are the command lines of the pages: in shell blocks, after `$ ` in transcripts, and in backquotes.
func writtenLines(t *testing.T, pages []*markdown.Page) []writtenLine {
	t.Helper()
	var found []writtenLine
	add := func(p *markdown.Page, line int, text string, mention bool) {
		commands, err := markdown.Commands(placeholder.ReplaceAllString(text, "demo"), "abx")
		if err != nil {
			t.Errorf("%s:%d: not a shell text: %v", p.Path, line, err)
		}
		for _, c := range commands {
			found = append(found, writtenLine{at: fmt.Sprintf("%s:%d", p.Path, line+c.Line-1), words: c.Words[1:], mention: mention})
		}
	}
	for _, p := range pages {
		for _, b := range p.Blocks {
			switch b.Language {
			case "sh", "bash":
				add(p, b.Line, b.Text, false)
			case "console":
				for i, line := range strings.Split(b.Text, "\n") {
					if typed, ok := strings.CutPrefix(line, "$ "); ok {
						add(p, b.Line+i, typed, false)
					} else if strings.HasPrefix(line, "error: ") && len(found) > 0 {
						found[len(found)-1].refusal = line
					}
				}
			}
		}
		for _, s := range p.Spans {
			if strings.HasPrefix(s.Text, "abx ") && !strings.Contains(s.Text, "…") {
				add(p, s.Line, s.Text, true)
			}
		}
	}
	return found
}

// judge runs command lines on a machine that has the contexts that pages speak of.
type judge struct{ home string }

func newJudge(t *testing.T) judge {
	t.Helper()
	j := judge{t.TempDir()}
	for _, name := range []string{"prod", "local", "agentbox", "agent", "work", "other"} {
		if code, _, errs := j.run(t, j.home, "agbx_0123", "context", "set", name, "--endpoint", "http://127.0.0.1:1", "--api-key-stdin"); code != 0 {
			t.Fatalf("prepare the contexts: %s", errs)
		}
	}
	return j
}

func (j judge) run(t *testing.T, home, stdin string, args ...string) (code int, out, errs string) {
	env := map[string]string{"HOME": home, "AGENTBOX_KEYRING": "file"}
	var stdout, stderr bytes.Buffer
	app := &cli.App{
		Index: registry.Default(), In: strings.NewReader(stdin), Out: &stdout, Err: &stderr,
		Getenv: func(name string) string { return env[name] },
		Pause:  func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
	code = app.Run(t.Context(), args)
	return code, stdout.String(), stderr.String()
}

// problem runs one command line and returns what is wrong with it, or nothing.
func (j judge) problem(t *testing.T, l writtenLine) string {
	t.Helper()
	home := t.TempDir()
	if err := os.CopyFS(home, os.DirFS(j.home)); err != nil {
		t.Fatal(err)
	}
	args, stdin := slices.Clone(l.words), "agbx_0123"
	for i, w := range args {
		flag := ""
		if i > 0 {
			flag = args[i-1]
		}
		switch {
		case strings.Contains(w, "$") && flag == "--endpoint":
			args[i] = "http://127.0.0.1:1"
		case strings.Contains(w, "$"):
			args[i] = "demo"
		case flag == "--dir":
			args[i] = filepath.Join(home, w)
		case (flag == "-f" || flag == "--file") && w == "-":
			stdin = string(exampleBody(args))
		case flag == "-f" || flag == "--file":
			args[i] = filepath.Join(home, "body.json")
			if err := os.WriteFile(args[i], exampleBody(args), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	code, out, errs := j.run(t, home, stdin, args...)
	if l.refusal != "" && code != clierr.ExitOK && strings.Contains(errs, l.refusal+"\n") {
		return ""
	}
	if l.refusal == "" && (code == clierr.ExitOK || code == clierr.ExitUnreachable) {
		return checkQuery(args)
	}
	if l.mention && isCommand(l.words) {
		return ""
	}
	return fmt.Sprintf("exit %d\n%s%s", code, out, errs)
}

// isCommand tells whether the words name a command and nothing else.
func isCommand(words []string) bool {
	c, rest, err := cli.NewApp().Command().Find(words)
	return err == nil && len(rest) == 0 && c.HasParent()
}

// exampleBody is the document's own example of the body of a create or an update.
func exampleBody(args []string) []byte {
	ix := registry.Default()
	words := args[1:]
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") }); i >= 0 {
		words = words[:i]
	}
	address, problem := ix.ParseAddress(words)
	if problem != nil {
		return []byte("{}")
	}
	op, problem := ix.Write(args[0], address)
	if problem != nil || op.Request == nil {
		return []byte("{}")
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(op.Request.Example), &body); err != nil {
		return []byte("{}")
	}
	if _, named := body["name"]; named && args[0] == "update" {
		body["name"] = address.ID()
	}
	raw, _ := json.Marshal(body) // it was JSON a moment ago
	return raw
}

// simplePath is a --jq expression that can be followed through a schema.
var simplePath = regexp.MustCompile(`^(\.[A-Za-z]\w*(\[\])?)+$`)

// checkQuery follows a plain --jq path through the schema of the answer: jq itself answers null to a name that is not there.
func checkQuery(args []string) string {
	i := slices.Index(args, "--jq")
	if i < 0 || i+1 == len(args) || !simplePath.MatchString(args[i+1]) {
		return ""
	}
	ix := registry.Default()
	words := slices.Clone(args)
	words = words[:slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") })]
	if len(words) == 0 || ix.Find(words[0]) == nil {
		return ""
	}
	address, problem := ix.ParseAddress(words)
	if problem != nil {
		return problem.Message
	}
	op, problem := ix.Read(address)
	if problem != nil {
		return problem.Message
	}
	schema := ix.Schema(op.Success().Schema)
	path := strings.Split(strings.TrimPrefix(args[i+1], "."), ".")
	if address.Collection() {
		if path[0] != "items[]" {
			return fmt.Sprintf("--jq %s: a list is {items, total}", args[i+1])
		}
		path[0] = address.Resource.List.Rows + "[]"
	} else if unwrap := address.Resource.Item.Unwrap; unwrap != "" && address.View == nil {
		path = append([]string{unwrap}, path...)
	}
	for _, step := range path {
		name, isList := strings.CutSuffix(step, "[]")
		schema = ix.Deref(schema)
		field := schema.Field(name)
		switch {
		case field != nil:
			schema = &field.Schema
		case schema.Elem != nil && schema.Type != registry.TypeArray:
			schema = schema.Elem
		default:
			return fmt.Sprintf("--jq %s: the answer has no %s", args[i+1], name)
		}
		if schema = ix.Deref(schema); isList {
			if schema.Elem == nil {
				return fmt.Sprintf("--jq %s: %s is no list", args[i+1], name)
			}
			schema = schema.Elem
		}
	}
	return ""
}

func TestPagesNameOnlyWhatExists(t *testing.T) {
	t.Parallel()
	j := newJudge(t)
	for _, pages := range [][]*markdown.Page{skillPages(t), docPages(t)} {
		lines := writtenLines(t, pages)
		if len(lines) < 20 {
			t.Errorf("only %d command lines found in %d pages", len(lines), len(pages))
		}
		for _, l := range lines {
			if problem := j.problem(t, l); problem != "" {
				t.Errorf("%s\n%s", l, problem)
			}
		}
	}
}

// TestDriftIsSeen: the judge refuses a wrong token wherever it stands.
func TestDriftIsSeen(t *testing.T) {
	t.Parallel()
	j := newJudge(t)
	for _, line := range []string{
		"env", "envs demo pool", "envs demo logs", "envs demo scale", "sandboxes sbx0example metrics", "scale envs demo", "scale envs demo pools demo-1c2gi",
		"create envs demo -f x.json", "create clusters -f x.json", "update envs -f x.json", "approve envs demo", "delete envs",
		"envs --filter status=Running", "envs --filter ready=maybe", "sandboxes --filter status=Sleeping", "envs --fields nam", "envs --sort age",
		"envs --format xml", "envs --jsn", "envs --tail 5", "whoami now", "context sett x", "context show nowhere", "skills shw abx-common",
		"skills show abx-nothing", "skills install --for nobody", "agent-context pool", "envs demo --jq .poolSize", "envs --jq .items[].nam",
		"envs --jq [", "envs demo pools demo-1c2gi --jq .status.idle", "completion tcsh", "upgrade --check now", "envs --limit few",
	} {
		commands, err := markdown.Commands("abx "+line, "abx")
		if err != nil {
			t.Fatal(err)
		}
		if j.problem(t, writtenLine{at: line, words: commands[0].Words[1:]}) == "" {
			t.Errorf("abx %s: nothing is wrong, it says", line)
		}
	}
}

// TestEverythingIsNamed: what abx has, a skill names, or for the commands that only people need, a page.
func TestEverythingIsNamed(t *testing.T) {
	t.Parallel()
	forPeople := []string{"completion", "upgrade", "version", "help", "skills"}
	var text, prose strings.Builder
	for _, p := range skillPages(t) {
		raw, err := os.ReadFile(p.Path)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(raw)
	}
	for _, p := range docPages(t) {
		raw, err := os.ReadFile(p.Path)
		if err != nil {
			t.Fatal(err)
		}
		prose.Write(raw)
	}
	ix := registry.Default()
	for i := range ix.Resources {
		if r := &ix.Resources[i]; !strings.Contains(text.String(), "`"+ix.Form(r)+"`") {
			t.Errorf("no skill names %s", ix.Form(r))
		}
	}
	for _, c := range cli.NewApp().Command().Commands() {
		where := text.String()
		if slices.Contains(forPeople, c.Name()) {
			where += prose.String()
		}
		if c.Hidden || ix.Find(c.Name()) != nil {
			continue
		}
		if !regexp.MustCompile(`abx ([a-z|]*\|)?` + c.Name() + `\b`).MatchString(where) {
			t.Errorf("nothing names abx %s", c.Name())
		}
	}
}
