package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/cli"
	"navix.sh/agentbox/internal/stub"
	"navix.sh/agentbox/registry"
)

// result is what a command line left behind.
type result struct {
	code     int
	out, err string
}

// platform is a stub with an environment that points at it.
type platform struct {
	*stub.Server
	env map[string]string
	dir string
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	s, err := stub.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, problem := range s.Invalid() {
			t.Errorf("not in the document: %s", problem)
		}
	})
	return &platform{Server: s, dir: t.TempDir(), env: map[string]string{
		"HOME": t.TempDir(), "AGENTBOX_ENDPOINT": s.URL, "AGENTBOX_API_KEY": stub.Key, "AGENTBOX_KEYRING": "file",
		"GORACE": raceOptions,
	}}
}

// run runs a command line without terminal; input is standard input.
func (p *platform) run(t *testing.T, input io.Reader, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	app := &cli.App{Index: registry.Default(), In: input, Out: &out, Err: &errs,
		Getenv: func(k string) string { return p.env[k] },
		Pause:  func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
	code := app.Run(t.Context(), args)
	return result{code, out.String(), errs.String()}
}

// TestInterruptWhileAWatchReconnects cancels while the watch waits for its next attempt.
func TestInterruptWhileAWatchReconnects(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	ctx, interrupt := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	app := &cli.App{Index: registry.Default(), In: closed{}, Out: &out, Err: &errs, Getenv: func(k string) string { return p.env[k] },
		Pause: func(ctx context.Context, _ time.Duration) error {
			interrupt()
			return ctx.Err()
		}}
	if code := app.Run(ctx, []string{"envs", "--watch"}); code != 130 || !strings.Contains(errs.String(), "connecting again") {
		t.Errorf("exit %d: %s", code, &errs)
	}
}

// offline is a run with nothing configured.
func offline(t *testing.T, args ...string) result {
	p := &platform{env: map[string]string{"HOME": t.TempDir()}}
	return p.run(t, closed{}, args...)
}

// closed is a standard input that is not there.
type closed struct{}

func (closed) Read([]byte) (int, error) { return 0, os.ErrClosed }

// leaf is one address of the registry that a command can end in.
type leaf struct {
	words []string // with ids of the document's examples
	verb  string
	res   *registry.Resource
	view  string
}

func (l leaf) args() []string {
	if l.verb == "" {
		return slices.Clip(slices.Clone(l.words))
	}
	return slices.Clip(append([]string{l.verb}, l.words...))
}

var exampleIDs = map[string]string{
	"cluster": "c-east", "env": "demo", "pool": "demo-1c2gi", "scaling-group": "1c2gi", "sandbox": "i1ko0m7f2q9h4c8d0b5n6p3t7u",
	"template": "e2b", "admin-template": "e2b", "approval": "apr_5d2c8e1f9a7b3c40", "grant": "grn_a1b2c3d4e5f60718",
	"api-key": "b81d20c47e9f3a65", "admin-api-key": "b81d20c47e9f3a65", "team": "research",
}

// leaves are all reads and writes of the registry.
func leaves() []leaf {
	ix := registry.Default()
	var list []leaf
	for i := range ix.Resources {
		r := &ix.Resources[i]
		words := []string{r.Plural}
		if r.Parent != "" {
			parent := ix.Find(r.Parent)
			words = []string{parent.Plural, exampleIDs[parent.Kind], r.Plural}
		}
		item := append(slices.Clone(words), exampleIDs[r.Kind])
		if r.List != nil {
			list = append(list, leaf{words: words, res: r})
		}
		if r.Item != nil {
			list = append(list, leaf{words: item, res: r})
		}
		for _, v := range r.Views {
			list = append(list, leaf{words: append(slices.Clone(item), v.Name), res: r, view: v.Name})
		}
		for _, v := range r.Verbs {
			target := item
			if v.Name == "create" {
				target = words
			}
			list = append(list, leaf{words: target, verb: v.Name, res: r})
		}
		for _, a := range r.Actions {
			list = append(list, leaf{words: item, verb: a.Name, res: r})
		}
	}
	return list
}

func TestEveryLeaf(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for _, l := range leaves() {
		t.Run(strings.Join(l.args(), "_"), func(t *testing.T) {
			helpIsThere(t, l)
			refusals(t, l)
			if r := offline(t, append(l.args(), "--schema")...); r.code == 0 {
				oneJSON(t, r.out)
			} else if r.code != 2 || r.out != "" {
				t.Errorf("--schema: exit %d, %q", r.code, r.out)
			}
			jsonIsOneValue(t, p, l)
		})
	}
}

// helpIsThere checks that help works offline, reads nothing and shows a line to run.
func helpIsThere(t *testing.T, l leaf) {
	for _, args := range [][]string{append(l.args(), "--help"), append([]string{"help"}, l.args()...), append([]string{"--help"}, l.args()...)} {
		r := offline(t, args...)
		if r.code != 0 || r.err != "" || !strings.Contains(r.out, "abx ") {
			t.Errorf("abx %v: exit %d, %s", args, r.code, r.err)
		}
	}
}

// refusals checks that what is wrong is refused before the configuration is read: this
// run has none, so that everything else would exit 9.
func refusals(t *testing.T, l leaf) {
	for name, args := range map[string][]string{
		"unknown flag":  append(l.args(), "--no-such-flag"),
		"unknown child": append(l.args(), "x", "no-such-child"),
		"missing value": append(l.args(), "--cluster"),
		"unknown word":  append([]string{"no-such-word"}, l.args()...),
	} {
		text := offline(t, args...)
		if text.code != 2 || text.out != "" || !strings.HasPrefix(text.err, "error: ") || !strings.Contains(text.err, "hint: ") {
			t.Errorf("%s: exit %d, %q %q", name, text.code, text.out, text.err)
		}
		asJSON := offline(t, append([]string{"--json"}, args...)...)
		if asJSON.code != 2 || asJSON.out != "" {
			t.Errorf("%s --json: exit %d, %q", name, asJSON.code, asJSON.out)
		}
		oneJSON(t, asJSON.err)
		if e := errorOf(t, asJSON.err); e.ExitCode != 2 || e.Code == "" || e.Message == "" {
			t.Errorf("%s --json: %+v", name, e)
		}
	}
}

// jsonIsOneValue runs the leaf against the stub, without a terminal or standard input.
func jsonIsOneValue(t *testing.T, p *platform, l leaf) {
	args := append(l.args(), "--json")
	switch l.verb {
	case "create":
		args = append(args, "-f", p.file(t, l, "create", "--editable"))
	case "update":
		r := p.run(t, closed{}, append(slices.Clone(l.words), "--editable")...)
		if r.code != 0 {
			t.Fatalf("--editable: %s", r.err)
		}
		args = append(args, "-f", p.save(t, r.out))
	case "scale":
		args = append(args, "--replicas", "3")
	}
	r := p.run(t, closed{}, args...)
	if l.view != "" && l.res.View(l.view).Operation == "" {
		if r.code != 2 || r.out != "" {
			t.Errorf("a view that only the console has: exit %d", r.code)
		}
		oneJSON(t, r.err)
		return
	}
	if r.code != 0 || r.err != "" {
		t.Fatalf("abx %v: exit %d, %s", args, r.code, r.err)
	}
	oneJSON(t, r.out)
}

func (p *platform) file(t *testing.T, l leaf, args ...string) string {
	t.Helper()
	r := p.run(t, closed{}, append([]string{args[0]}, append(slices.Clone(l.words), args[1:]...)...)...)
	if r.code != 0 {
		t.Fatalf("%v: %s", args, r.err)
	}
	return p.save(t, r.out)
}

func (p *platform) save(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(p.dir, "body.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// oneJSON checks that s is exactly one JSON value on one or more lines.
func oneJSON(t *testing.T, s string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	var v any
	if err := d.Decode(&v); err != nil {
		t.Errorf("not JSON: %v in %q", err, s)
		return
	}
	if _, err := d.Token(); err != io.EOF {
		t.Errorf("more than one JSON value: %q", s)
	}
	if !strings.HasSuffix(s, "\n") {
		t.Error("no newline at the end")
	}
}

type errorObject struct {
	Code, Message string
	Hint          []string
	Status        int
	ExitCode      int
	Valid         []string
	Suggestion    string
	Approval      map[string]any
	RequestID     string
}

func errorOf(t *testing.T, s string) errorObject {
	t.Helper()
	var e struct{ Error errorObject }
	if err := json.Unmarshal([]byte(s), &e); err != nil {
		t.Errorf("no error object: %q", s)
	}
	return e.Error
}

// TestExamplesRun runs every example line of the registry and of the commands' help.
func TestExamplesRun(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	ix := registry.Default()
	for i := range ix.Resources {
		r := &ix.Resources[i]
		if len(r.Examples) == 0 {
			t.Errorf("%s has no example", r.Plural)
		}
		for _, e := range r.Examples {
			t.Run(e.Command, func(t *testing.T) { p.example(t, e.Command) })
		}
	}
}

// example runs one line of help as a shell would, as far as redirections go.
func (p *platform) example(t *testing.T, line string) {
	t.Helper()
	command, into, redirected := strings.Cut(line, " > ")
	args := strings.Fields(command)[1:]
	for i, a := range args {
		if (a == "-f" || a == "--file") && i+1 < len(args) {
			args[i+1] = filepath.Join(p.dir, args[i+1])
		}
	}
	r := p.run(t, closed{}, args...)
	if r.code != 0 {
		t.Fatalf("%s: exit %d: %s", line, r.code, r.err)
	}
	if redirected {
		if err := os.WriteFile(filepath.Join(p.dir, strings.TrimSpace(into)), []byte(r.out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
