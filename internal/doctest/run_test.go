package doctest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/internal/markdown"
	"navix.sh/agentbox/internal/testplatform"
)

// hangs is far above what a page takes, so that only a hang meets it.
const hangs = 5 * time.Minute

// documented is the address that `make up` serves on and pages speak of.
const documented = "http://127.0.0.1:8480"

// reader is somebody who has started the platform with `make up` and types what a page says.
type reader struct {
	platform *testplatform.Platform
	home     string
	dir      string
}

func newReader(t *testing.T, p *testplatform.Platform) *reader {
	t.Helper()
	base := t.TempDir()
	r := &reader{platform: p, home: filepath.Join(base, "home"), dir: filepath.Join(base, "work")}
	share := filepath.Join(r.home, ".local", "share")
	for _, dir := range []string{share, r.dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(p.DataDir, filepath.Join(share, "agentbox")); err != nil {
		t.Fatal(err)
	}
	r.shell(t, ". ~/.local/share/agentbox/client.env\n"+
		"printf %s \"$AGENTBOX_API_KEY\" | abx context set local --endpoint \"$AGENTBOX_ENDPOINT\" --api-key-stdin\n")
	return r
}

// command is a program with the reader's environment.
func (r *reader) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.dir
	cmd.Env = []string{"HOME=" + r.home, "PATH=" + r.platform.Bin + ":" + os.Getenv("PATH"), "AGENTBOX_KEYRING=file", "LANG=C.UTF-8"}
	cmd.WaitDelay = time.Second
	return cmd
}

// shell runs a script that must succeed, and returns what it printed.
func (r *reader) shell(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	cmd := r.command(ctx, "sh", "-eu")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(script, documented, r.platform.Endpoint()))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		text := out.String()
		if at := strings.LastIndex(text, marker); at > 0 {
			text = text[at:]
		}
		t.Errorf("%v\n%s", err, text)
	}
	return out.String()
}

// marker stands in the output before that of each block.
const marker = "::: "

// TestShellBlocks runs the shell blocks of each page, in order, in one shell.
func TestShellBlocks(t *testing.T) {
	p := testplatform.Start(t)
	for _, path := range executed {
		t.Run(path, func(t *testing.T) {
			var script strings.Builder
			for _, b := range page(t, path).Blocks {
				if b.Language == "sh" && b.NotRun == "" {
					// A block reads the rest of the script from nowhere.
					fmt.Fprintf(&script, "echo '%s%s:%d' >&2\n{\n%s} </dev/null\n", marker, path, b.Line, b.Text)
				}
			}
			if script.Len() == 0 {
				return // all its blocks say why they are not run
			}
			newReader(t, p).shell(t, script.String())
		})
	}
	for _, path := range executed {
		for _, b := range page(t, path).Blocks {
			if b.Language == "console" && b.NotRun == "" {
				t.Run(fmt.Sprintf("transcript %s:%d", path, b.Line), func(t *testing.T) {
					r := newReader(t, p)
					if strings.Contains(b.Text, "$ node ") {
						r.useE2B(t)
					}
					transcript(t, r, path, b)
				})
			}
		}
	}
	t.Run("JavaScript", func(t *testing.T) { javaScript(t, newReader(t, p)) })
}

// volatile are the words of an output that differ from run to run, those with a digit in them, and those that a page
// cuts short.
var volatile = regexp.MustCompile(`\S*[0-9…]\S*`)

// plain is an output without what may differ. The hints after a table are left out where the page leaves them out.
func plain(text string, hints bool) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.Join(strings.Fields(line), " ")
		if hints || !strings.HasPrefix(line, "hint: ") && !strings.HasPrefix(line, "read: ") {
			lines = append(lines, volatile.ReplaceAllString(line, "#"))
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// typed is one command of a transcript, which goes on where lines are indented by four blanks, and what it prints.
type typed struct{ command, output string }

func commandsOf(transcript string) []typed {
	var all []typed
	for _, entry := range strings.Split("\n"+transcript, "\n$ ")[1:] {
		command, output, _ := strings.Cut(entry, "\n")
		for strings.HasPrefix(output, "    ") {
			var line string
			line, output, _ = strings.Cut(output, "\n")
			command += "\n" + line
		}
		all = append(all, typed{command, output})
	}
	return all
}

// transcript types what follows `$ `, all in one shell, and compares the answers with the page.
func transcript(t *testing.T, r *reader, path string, b markdown.Block) {
	t.Helper()
	commands := commandsOf(b.Text)
	var script strings.Builder
	script.WriteString("exec 2>&1\n")
	for _, c := range commands {
		fmt.Fprintf(&script, "echo '%s'\n%s || true\n", marker, c.command)
	}
	answers := strings.Split(r.shell(t, script.String()), marker+"\n")[1:]
	if len(answers) != len(commands) {
		t.Fatalf("%s:%d: %d commands, %d answers", path, b.Line, len(commands), len(answers))
	}
	for i, c := range commands {
		hints := strings.Contains(c.output, "hint: ")
		if plain(answers[i], hints) != plain(c.output, hints) {
			t.Errorf("%s:%d: %s prints\n%s\nand the page says\n%s", path, b.Line, c.command, answers[i], c.output)
		}
	}
}

// useE2B puts the published package where the reader's programs find it.
func (r *reader) useE2B(t *testing.T) {
	t.Helper()
	module := filepath.Join(testplatform.E2BPackages(t), "e2b-2.51")
	modules := filepath.Join(r.dir, "node_modules")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(module, filepath.Join(modules, "e2b")); err != nil {
		t.Fatal(err)
	}
}

// javaScript runs the snippets of the E2B guide as one program with the published package.
func javaScript(t *testing.T, r *reader) {
	r.useE2B(t)
	var program strings.Builder
	for _, b := range page(t, "docs/e2b.md").Blocks {
		if b.Language == "js" {
			fmt.Fprintf(&program, "// docs/e2b.md:%d\n%s", b.Line, b.Text)
		}
	}
	file := filepath.Join(r.dir, "guide.mjs")
	if err := os.WriteFile(file, []byte(program.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	out := r.shell(t, ". ~/.local/share/agentbox/client.env\nnode guide.mjs\n")
	for _, want := range []string{"hello from", "written from outside", "today.txt file", "true\n", "it works"} {
		if !strings.Contains(out, want) {
			t.Errorf("the guide's program does not print %q:\n%s", want, out)
		}
	}
}
