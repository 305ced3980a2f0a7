package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"navix.sh/agentbox/internal/stub"
)

// terminal is an abx that runs on a pseudo-terminal.
type terminal struct {
	cmd  *exec.Cmd
	file *os.File

	mu   sync.Mutex
	seen bytes.Buffer
	more chan struct{} // something new was shown
	done chan struct{}
}

// onTerminal starts abx with all its streams on a terminal.
func onTerminal(t *testing.T, p *platform, env []string, args ...string) *terminal {
	t.Helper()
	dir, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "abx"), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color"}, env...)
	for k, v := range p.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 60})
	if err != nil {
		t.Fatalf("no pseudo-terminal: %v", err)
	}
	term := &terminal{cmd: cmd, file: file, more: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(term.done)
		buffer := make([]byte, 4096)
		for {
			n, err := file.Read(buffer)
			term.mu.Lock()
			term.seen.Write(buffer[:n])
			term.mu.Unlock()
			select {
			case term.more <- struct{}{}:
			default:
			}
			if err != nil {
				return // the other side has closed
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = file.Close()
	})
	return term
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen.String()
}

// patience is how long a test waits for something that has to come.
const patience = 30 * time.Second

// waitFor waits until the terminal has shown s.
func (x *terminal) waitFor(t *testing.T, s string) {
	t.Helper()
	late := time.After(patience)
	for !strings.Contains(x.text(), s) {
		select {
		case <-x.more:
		case <-late:
			t.Fatalf("%q never came; the terminal shows %q", s, x.text())
		}
	}
}

// exit waits for the end and returns the exit code and everything that was shown.
func (x *terminal) exit(t *testing.T) (int, string) {
	t.Helper()
	err := x.cmd.Wait()
	<-x.done
	if err != nil {
		return x.cmd.ProcessState.ExitCode(), x.text()
	}
	return 0, x.text()
}

func TestColourOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want bool
	}{
		{"terminal", nil, []string{"envs"}, true},
		{"NO_COLOR", []string{"NO_COLOR=1"}, []string{"envs"}, false},
		{"dumb terminal", []string{"TERM=dumb"}, []string{"envs"}, false},
		{"never", nil, []string{"envs", "--color", "never"}, false},
		{"NO_COLOR but asked for", []string{"NO_COLOR=1"}, []string{"envs", "--color", "always"}, true},
		{"help", nil, []string{"--help"}, true},
		{"JSON is never coloured", nil, []string{"envs", "--json", "--color", "always"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, shown := onTerminal(t, p, c.env, c.args...).exit(t)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, shown)
			}
			if got := strings.Contains(shown, "\x1b["); got != c.want {
				t.Errorf("colour %v, want %v: %q", got, c.want, shown)
			}
			if strings.Contains(shown, "\x1b]") || strings.Contains(shown, "\x1b[6n") {
				t.Errorf("the terminal was asked something: %q", shown)
			}
		})
	}
}

// TestWideCharactersOnATerminal checks that styled and wide cells stand in their columns.
func TestWideCharactersOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.Next("ListSandboxEnvs", stub.Answer{Status: 200, Body: `{"items":[{"name":"日本語","mode":"WarmPool"},{"name":"👩‍👩‍👧","mode":"WarmPool"},{"name":"abc","mode":"WarmPool"}],"total":3}`})
	_, shown := onTerminal(t, p, nil, "envs", "--fields", "name,mode").exit(t)
	for _, line := range []string{"日本語  WarmPool", "👩‍👩‍👧      WarmPool", "abc     WarmPool"} {
		if !strings.Contains(shown, line) {
			t.Errorf("%q is not in %q", line, shown)
		}
	}
}

func TestProgressAndInterruption(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	const growing = `{"template":{"name":"demo-1c2gi","spec":{"replicas":9},"status":{"phase":"ScalingUp","idleReplicas":1}},"editable":{"replicas":2}}`
	for range 1000 {
		p.Next("GetEnvSandboxPool", stub.Answer{Status: 200, Body: growing})
	}
	x := onTerminal(t, p, nil, "scale", "envs", "demo", "pools", "demo-1c2gi", "--replicas", "9", "--wait")
	x.waitFor(t, "1 idle and 0 running of 9, ScalingUp")
	if _, err := x.file.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	code, shown := x.exit(t)
	if code != 130 {
		t.Errorf("exit %d, want 130: %q", code, shown)
	}
	hidden, back := strings.LastIndex(shown, "\x1b[?25l"), strings.LastIndex(shown, "\x1b[?25h")
	if hidden < 0 || back < hidden {
		t.Errorf("the cursor was hidden and not brought back: %q", shown)
	}
	if !strings.Contains(shown, "error: interrupted while waiting for envs demo pools demo-1c2gi; the write was sent") {
		t.Errorf("it is not said what was interrupted: %q", shown)
	}
}

// TestInterruptedStreams ends a watch, a hanging read and a terminated wait.
func TestInterruptedStreams(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.Next("ListSandboxEnvs", stub.Answer{Status: 200, Hang: true, Header: map[string]string{"Content-Type": "text/event-stream"},
		Body: `data: {"type":"ADDED","kind":"env","object":{"name":"demo"}}` + "\n\n" + `data: {"type":"BOOKMARK"}` + "\n\n"})
	x := onTerminal(t, p, nil, "envs", "--watch", "--fields", "name")
	x.waitFor(t, "demo")
	if err := x.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code, shown := x.exit(t); code != 130 || strings.Contains(shown, "panic") {
		t.Errorf("watch: exit %d: %q", code, shown)
	}
	p.Log()
	p.Next("ListSandboxEnvs", stub.Answer{Hang: true})
	x = onTerminal(t, p, nil, "envs", "--cluster", "c-east")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Await(ctx, "/envs"); err != nil {
		t.Fatal(err)
	}
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, shown := x.exit(t); code != 130 {
		t.Errorf("read: exit %d: %q", code, shown)
	}
}

// TestABrokenPipeIsNoError stops reading before everything was written, as head does.
func TestABrokenPipeIsNoError(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.SetRows("ListSandboxes", 5000)
	dir, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "abx"), "sandboxes", "--format", "ndjson")
	for k, v := range p.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	_ = cmd.Wait() // it ends by SIGPIPE or with 0, without a word
	if errs.Len() > 0 {
		t.Errorf("it complained: %s", errs.String())
	}
	if _, err := os.Stat(filepath.Join(p.dir, "core")); err == nil {
		t.Error("it dumped core")
	}
}
