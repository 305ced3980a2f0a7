package command

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"navix.sh/agentbox/envd/spec/filesystem/filesystemconnect"
	"navix.sh/agentbox/envd/spec/process/processconnect"

	"connectrpc.com/connect"
)

// asDaemon makes the test binary be envd, so that tests drive a real process without a build of their own.
const asDaemon = "TEST_AS_ENVD"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		os.Unsetenv(asDaemon)
		os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// daemon is a running envd.
type daemon struct {
	URL    string
	cmd    *exec.Cmd
	client *http.Client
}

// start runs envd on a port of the kernel's choice and ends it, with everything it started, after the test.
func start(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{client: &http.Client{Transport: &http.Transport{}}}
	args = append([]string{"--listen", "127.0.0.1", "--port", "0", "--ca-file", filepath.Join(t.TempDir(), "run", "ca.crt")}, args...)
	d.cmd = exec.Command(os.Args[0], args...)
	// The race detector would otherwise linger a second at each exit.
	d.cmd.Env = append([]string{asDaemon + "=1", "GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH")}, env...)
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.client.CloseIdleConnections()
		d.stop(t)
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("envd said nothing: %v", err)
	}
	d.URL = "http://" + strings.TrimSpace(strings.TrimPrefix(line, "envd listening on "))
	return d
}

// stop sends SIGTERM and demands a clean exit that leaves no process behind.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	if d.cmd.ProcessState != nil {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("envd ended with %v", err)
	}
}

func (d *daemon) processes(options ...connect.ClientOption) processconnect.ProcessClient {
	return processconnect.NewProcessClient(d.client, d.URL, append([]connect.ClientOption{connect.WithProtoJSON()}, options...)...)
}

func (d *daemon) filesystem(options ...connect.ClientOption) filesystemconnect.FilesystemClient {
	return filesystemconnect.NewFilesystemClient(d.client, d.URL, append([]connect.ClientOption{connect.WithProtoJSON()}, options...)...)
}

// overHTTP2 returns a client that speaks h2c only.
func overHTTP2(t *testing.T) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// call makes one plain request and returns status, header and body.
func (d *daemon) call(t *testing.T, method, path, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest(method, d.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := d.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

// within gives a test's requests a generous end, so that a bug fails instead of hanging.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls for what no event announces.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx := within(t)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s did not come about", what)
		}
	}
}

// alive says whether a process with this marker in its arguments exists.
func alive(marker string) bool {
	matches, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range matches {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), marker) {
			return true
		}
	}
	return false
}

// unique returns a duration for sleep that no other process on the machine uses, to be found by.
func unique(t *testing.T) string {
	return fmt.Sprintf("9%d.%d", os.Getpid(), time.Now().UnixNano()%1e9)
}
