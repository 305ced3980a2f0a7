package testplatform

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Limits for what a test waits for; far above what is normal, so that only a hang meets them.
const (
	readyWithin = 60 * time.Second
	stopWithin  = 60 * time.Second
)

// Platform is a running controller.
type Platform struct {
	// Bin holds abx, controller, envd and sandbox-init.
	Bin     string
	DataDir string
	// ReadyLine is what the controller printed when it was ready.
	ReadyLine string
	// Client is the content of client.env.
	Client map[string]string

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	done chan struct{}
	logs *lockedBuffer
}

// Start runs a controller with its embedded Kubernetes API on a free port and waits until it is ready. It is stopped,
// and checked to have stopped cleanly, when the test ends.
func Start(t testing.TB, args ...string) *Platform {
	t.Helper()
	// Not t.TempDir: a test's name in the path would make the paths of sockets too long.
	dir, err := os.MkdirTemp("", "abx")
	if err != nil {
		t.Fatal(err)
	}
	p := &Platform{Bin: Build(t), DataDir: dir, t: t, args: args}
	t.Cleanup(func() {
		p.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the stopped platform left something that cannot be removed: %v", err)
		}
		if t.Failed() {
			t.Logf("controller log:\n%s", p.Logs())
		}
	})
	p.start()
	return p
}

func (p *Platform) start() {
	p.t.Helper()
	p.logs = &lockedBuffer{}
	args := append([]string{"--listen", "127.0.0.1:0", "--data-dir", p.DataDir}, p.args...)
	p.cmd = exec.Command(filepath.Join(p.Bin, "controller"), args...)
	p.cmd.Env = cleanEnv()
	p.cmd.Stderr = p.logs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ready := make(chan string, 1)
	p.done = make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if strings.HasPrefix(line, "ready ") {
				ready <- strings.TrimSpace(line)
			}
			if err != nil {
				break
			}
		}
		_, _ = io.Copy(io.Discard, r)
		_ = p.cmd.Wait()
	}(p.done)
	select {
	case p.ReadyLine = <-ready:
	case <-p.done:
		p.t.Fatalf("the controller ended before it was ready: %v\n%s", p.cmd.ProcessState, p.Logs())
	case <-time.After(readyWithin):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
		p.t.Fatalf("the controller was not ready within %s\n%s", readyWithin, p.Logs())
	}
	p.Client = readEnvFile(p.t, filepath.Join(p.DataDir, "client.env"))
}

// Endpoint is the address of the one port.
func (p *Platform) Endpoint() string { return p.Client["AGENTBOX_ENDPOINT"] }

// Pid is the controller's process id.
func (p *Platform) Pid() int { return p.cmd.Process.Pid }

// Logs is what the controller has logged since it was last started.
func (p *Platform) Logs() string { return p.logs.String() }

// Stop asks the controller to end (SIGTERM) and waits; a second call does nothing.
func (p *Platform) Stop() {
	p.t.Helper()
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			p.t.Errorf("the controller ended with %d after SIGTERM", code)
		}
	case <-time.After(stopWithin):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
		p.t.Errorf("the controller did not end within %s of SIGTERM", stopWithin)
	}
}

// Kill ends the controller as a power cut would (SIGKILL).
func (p *Platform) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Restart starts the controller again on the same data directory; the port may change.
func (p *Platform) Restart() {
	p.t.Helper()
	p.start()
}

// Env is a clean environment with client.env in it, for child processes that act as a user.
func (p *Platform) Env(extra ...string) []string {
	env := cleanEnv()
	for k, v := range p.Client {
		env = append(env, k+"="+v)
	}
	return append(env, extra...)
}

// cleanEnv is the environment without what would steer the programs under test.
func cleanEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "AGENTBOX_") || strings.HasPrefix(name, "E2B_") || name == "KUBECONFIG" || strings.HasPrefix(name, "XDG_") {
			continue
		}
		env = append(env, kv)
	}
	return env
}

func readEnvFile(t testing.TB, path string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		name, value, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "export ")), "=")
		if ok {
			out[name] = strings.Trim(value, "'")
		}
	}
	return out
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Command runs one of the platform's programs as a user of this platform would.
func (p *Platform) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.Bin, name), args...)
	cmd.Env = p.Env()
	return cmd
}
