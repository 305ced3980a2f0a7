package installtest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is install.sh as it stands in the repository.
const script = "../../install.sh"

// hangs is far above what an installation takes, so that only a hang meets it.
const hangs = 2 * time.Minute

// shells are the ones the installer promises to run in.
var shells = [][]string{{"sh"}, {"dash"}, {"bash"}, {"zsh"}, {"busybox", "sh"}}

// tools are everything that the installer may call.
var tools = []string{
	"sh", "awk", "cat", "chmod", "cp", "curl", "cut", "grep", "mkdir", "mktemp", "mv", "openssl", "rm", "rmdir", "sed", "sha256sum", "uname",
}

// eachShell runs a test in every shell of this machine.
func eachShell(t *testing.T, run func(t *testing.T, shell []string)) {
	for _, shell := range shells {
		t.Run(shell[0], func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell[0])
			if err != nil {
				t.Skipf("%s is not on this machine", shell[0])
			}
			run(t, append([]string{path}, shell[1:]...))
		})
	}
}

// machine is a home folder, a PATH of named tools and nothing else.
type machine struct {
	shell []string
	home  string
	bin   string // the tools
	tmp   string
	env   map[string]string
}

// newMachine lacks the tools in without. The paths hold spaces.
func newMachine(t *testing.T, shell []string, without ...string) *machine {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a machine")
	m := &machine{shell: shell, home: filepath.Join(dir, "the home"), bin: filepath.Join(dir, "tools"), tmp: filepath.Join(dir, "tmp dir")}
	for _, d := range []string{m.home, m.bin, m.tmp} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, rc := range []string{".profile", ".bashrc", ".zshrc", ".zprofile"} {
		write(t, filepath.Join(m.home, rc), "# "+rc+"\n", 0o644)
	}
	for _, tool := range tools {
		if !slices.Contains(without, tool) {
			m.addTool(t, tool)
		}
	}
	m.env = map[string]string{"HOME": m.home, "PATH": m.bin, "TMPDIR": m.tmp, "SHELL": "/bin/sh"}
	return m
}

func (m *machine) addTool(t *testing.T, name string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not on this machine", name)
	}
	if err := os.Symlink(path, filepath.Join(m.bin, name)); err != nil {
		t.Fatal(err)
	}
}

// use serves a release and points the machine at it, as a person who has its address and key.
func (m *machine) use(r *release) {
	r.open()
	m.env["AGBX_CLI_BASE"] = r.url
	m.env["AGBX_CLI_PUBLIC_KEY"] = r.pem
}

func (m *machine) binDir() string   { return filepath.Join(m.home, ".local", "bin") }
func (m *machine) skillDir() string { return filepath.Join(m.home, ".agents", "skills") }

// outcome is how a run ended.
type outcome struct {
	code     int
	out, err string
}

// install runs install.sh from a file.
func (m *machine) install(t *testing.T, args ...string) outcome {
	t.Helper()
	path, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	return m.run(t, "", append([]string{path}, args...)...)
}

// pipe runs a script as `curl … | sh -s -- args` does.
func (m *machine) pipe(t *testing.T, text string, args ...string) outcome {
	t.Helper()
	return m.run(t, text, append([]string{"-s", "--"}, args...)...)
}

func (m *machine) run(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.shell[0], append(slices.Clone(m.shell[1:]), args...)...)
	for name, value := range m.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v: %v\n%s", m.shell, err, stderr.String())
	}
	if left, _ := os.ReadDir(m.tmp); len(left) != 0 {
		t.Errorf("left in the folder for temporary files: %v", left)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// files are the contents of everything below the home folder.
func (m *machine) files(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(m.home), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(filepath.Join(m.home, name))
		found[name] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// newFiles are the names that are in after and not, or not the same, in before.
func newFiles(before, after map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if old, ok := before[name]; !ok || old != after[name] {
			names = append(names, name)
		}
	}
	return names
}

func (o outcome) want(t *testing.T, code int, out, err string) {
	t.Helper()
	if o.code != code || !strings.Contains(o.out, out) || !strings.Contains(o.err, err) {
		t.Errorf("exit %d, want %d, with %q in the output and %q in the errors\noutput: %s\nerrors: %s", o.code, code, out, err, o.out, o.err)
	}
}
