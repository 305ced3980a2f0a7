package command

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	spec "navix.sh/agentbox/envd/spec/process"
	"navix.sh/agentbox/envd/spec/process/processconnect"
)

func shell(script string) *spec.StartRequest {
	no := false
	return &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}, Stdin: &no}
}

// outcome is everything that one stream said.
type outcome struct {
	pid            uint32
	stdout, stderr string
	pty            string
	end            *spec.ProcessEvent_EndEvent
	ends           int
	afterEnd       int
}

func (o *outcome) add(event *spec.ProcessEvent) {
	if o.end != nil {
		o.afterEnd++
	}
	switch e := event.GetEvent().(type) {
	case *spec.ProcessEvent_Start:
		o.pid = e.Start.GetPid()
	case *spec.ProcessEvent_Data:
		o.stdout += string(e.Data.GetStdout())
		o.stderr += string(e.Data.GetStderr())
		o.pty += string(e.Data.GetPty())
	case *spec.ProcessEvent_End:
		o.end = e.End
		o.ends++
	}
}

func run(ctx context.Context, client processconnect.ProcessClient, req *connect.Request[spec.StartRequest]) (outcome, error) {
	var o outcome
	stream, err := client.Start(ctx, req)
	if err != nil {
		return o, err
	}
	defer stream.Close()
	for stream.Receive() {
		o.add(stream.Msg().GetEvent())
	}
	return o, stream.Err()
}

func mustRun(t *testing.T, client processconnect.ProcessClient, req *spec.StartRequest) outcome {
	t.Helper()
	o, err := run(within(t), client, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	if o.ends != 1 || o.afterEnd != 0 {
		t.Fatalf("%d end events and %d events behind them, want exactly one end", o.ends, o.afterEnd)
	}
	return o
}

// begin starts a process and reads up to its start event.
func begin(t *testing.T, ctx context.Context, client processconnect.ProcessClient, req *spec.StartRequest) (*connect.ServerStreamForClient[spec.StartResponse], uint32) {
	t.Helper()
	stream, err := client.Start(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	if !stream.Receive() {
		t.Fatalf("no start event: %v", stream.Err())
	}
	return stream, stream.Msg().GetEvent().GetStart().GetPid()
}

func byPid(pid uint32) *spec.ProcessSelector {
	return &spec.ProcessSelector{Selector: &spec.ProcessSelector_Pid{Pid: pid}}
}

func byTag(tag string) *spec.ProcessSelector {
	return &spec.ProcessSelector{Selector: &spec.ProcessSelector_Tag{Tag: tag}}
}

func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
}

func TestEndEvents(t *testing.T) {
	client := start(t, nil).processes()
	for _, test := range []struct {
		script string
		want   *spec.ProcessEvent_EndEvent
	}{
		{"exit 0", &spec.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}},
		{"exit 3", &spec.ProcessEvent_EndEvent{ExitCode: 3, Exited: true, Status: "exit status 3"}},
		{"kill -9 $$", &spec.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed"}},
		{"kill -15 $$", &spec.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: terminated"}},
	} {
		got := mustRun(t, client, shell(test.script)).end
		if got.GetExitCode() != test.want.ExitCode || got.GetExited() != test.want.Exited || got.GetStatus() != test.want.Status {
			t.Errorf("%s: %v", test.script, got)
		}
		wantError := ""
		if test.want.ExitCode != 0 {
			wantError = test.want.Status
		}
		if got.GetError() != wantError || (got.Error != nil) != (wantError != "") {
			t.Errorf("%s: error %q, want %q", test.script, got.GetError(), wantError)
		}
	}
}

func TestEveryProtocolAndCodec(t *testing.T) {
	d := start(t, nil)
	h2 := overHTTP2(t)
	clients := map[string]processconnect.ProcessClient{
		"connect JSON over HTTP/1.1":   processconnect.NewProcessClient(d.client, d.URL, connect.WithProtoJSON()),
		"connect binary over HTTP/1.1": processconnect.NewProcessClient(d.client, d.URL),
		"connect JSON over h2c":        processconnect.NewProcessClient(h2, d.URL, connect.WithProtoJSON()),
		"gRPC over h2c":                processconnect.NewProcessClient(h2, d.URL, connect.WithGRPC()),
		"gRPC-Web over HTTP/1.1":       processconnect.NewProcessClient(d.client, d.URL, connect.WithGRPCWeb()),
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			o := mustRun(t, client, shell("echo out; echo err >&2"))
			if o.stdout != "out\n" || o.stderr != "err\n" || o.pid == 0 {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestStartRefusals(t *testing.T) {
	client := start(t, nil).processes()
	nowhere := "/nope"
	file := "/etc/passwd"
	for _, test := range []struct {
		name    string
		req     *spec.StartRequest
		user    string
		code    connect.Code
		message string
	}{
		{"missing cwd", &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "true", Cwd: &nowhere}}, "", connect.CodeInvalidArgument, "cwd '/nope' does not exist"},
		{"cwd is a file", &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "true", Cwd: &file}}, "", connect.CodeInvalidArgument, "not a directory"},
		{"missing binary", &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "/no/such/thing"}}, "", connect.CodeInvalidArgument, "no such file or directory"},
		{"name not in PATH", &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "no-such-thing"}}, "", connect.CodeInvalidArgument, "executable file not found in $PATH"},
		{"not executable", &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "/etc/passwd"}}, "", connect.CodeInvalidArgument, "permission denied"},
		{"no command", &spec.StartRequest{}, "", connect.CodeInvalidArgument, "cmd is empty"},
		{"unknown user", shell("true"), "no-such-user", connect.CodeUnauthenticated, "invalid username: 'no-such-user'"},
		{"NUL in an argument", &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "/bin/echo", Args: []string{"a\x00b"}}}, "", connect.CodeInvalidArgument, "invalid argument"},
		{"bad variable", &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "true", Envs: map[string]string{"A=B": "c"}}}, "", connect.CodeInvalidArgument, "environment variable"},
		{"huge terminal", &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "true"}, Pty: &spec.PTY{Size: &spec.PTY_Size{Cols: 1 << 20, Rows: 1}}}, "", connect.CodeInvalidArgument, "error starting pty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := connect.NewRequest(test.req)
			if test.user != "" {
				req.Header().Set("Authorization", basic(test.user))
			}
			_, err := run(within(t), client, req)
			if connect.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, want %v with %q", err, test.code, test.message)
			}
		})
	}
}

func TestSelectors(t *testing.T) {
	client := start(t, nil).processes()
	ctx := within(t)
	signal := func(selector *spec.ProcessSelector, signal spec.Signal) error {
		_, err := client.SendSignal(ctx, connect.NewRequest(&spec.SendSignalRequest{Process: selector, Signal: signal}))
		return err
	}
	kill := spec.Signal_SIGNAL_SIGKILL
	for _, test := range []struct {
		selector *spec.ProcessSelector
		code     connect.Code
		message  string
	}{
		{byPid(4_000_000), connect.CodeNotFound, "process with pid 4000000 not found"},
		{byTag("t"), connect.CodeNotFound, "process with tag t not found"},
		{nil, connect.CodeUnimplemented, "selector is empty"},
	} {
		if err := signal(test.selector, kill); connect.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%v: %v", test.selector, err)
		}
	}
	tag := "mine"
	req := shell("exec sleep 1000")
	req.Tag = &tag
	stream, pid := begin(t, ctx, client, req)
	list, err := client.List(ctx, connect.NewRequest(&spec.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 1 {
		t.Fatalf("list: %v %v", list, err)
	}
	if p := list.Msg.GetProcesses()[0]; p.GetPid() != pid || p.GetTag() != tag || p.GetConfig().GetCmd() != "/bin/sh" {
		t.Errorf("listed %v", p)
	}
	if err := signal(byTag(tag), spec.Signal(7)); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("signal 7: %v", err)
	}
	if err := signal(byTag(tag), kill); err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() || stream.Msg().GetEvent().GetEnd().GetError() != "signal: killed" || stream.Msg().GetEvent().GetEnd().GetExitCode() != -1 {
		t.Errorf("after the kill: %v %v", stream.Msg(), stream.Err())
	}
	if stream.Receive() || stream.Err() != nil {
		t.Errorf("behind the end: %v %v", stream.Msg(), stream.Err())
	}
	if err := signal(byTag(tag), kill); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a second kill: %v", err)
	}
	list, err = client.List(ctx, connect.NewRequest(&spec.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 0 {
		t.Errorf("ended processes are listed: %v %v", list, err)
	}
	late, err := client.Connect(ctx, connect.NewRequest(&spec.ConnectRequest{Process: byPid(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	var o outcome
	for late.Receive() {
		o.add(late.Msg().GetEvent())
	}
	if late.Err() != nil || o.pid != pid || o.end.GetExitCode() != -1 {
		t.Errorf("a late connect got %+v %v", o, late.Err())
	}
}

func TestKillReachesGrandchildren(t *testing.T) {
	client := start(t, nil).processes()
	for name, script := range map[string]string{
		"background":      "sleep %s & echo ready; wait",
		"pipeline":        "(sleep %s | cat) & echo ready; wait",
		"own session":     "setsid sleep %s & echo ready; wait",
		"daemon":          "(setsid sleep %s &); echo ready; sleep 1000",
		"ignores SIGTERM": "trap '' TERM; sleep %s & echo ready; wait",
	} {
		t.Run(name, func(t *testing.T) {
			marker := unique(t)
			ctx := within(t)
			stream, pid := begin(t, ctx, client, shell(fmt.Sprintf(script, marker)))
			stream.Receive()
			eventually(t, "the grandchild", func() bool { return alive("sleep\x00" + marker) })
			if _, err := client.SendSignal(ctx, connect.NewRequest(&spec.SendSignalRequest{Process: byPid(pid), Signal: spec.Signal_SIGNAL_SIGKILL})); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the grandchild's end", func() bool { return !alive("sleep\x00" + marker) })
		})
	}
}

func TestDeadlineKillsTheTree(t *testing.T) {
	client := start(t, nil).processes()
	marker := unique(t)
	ctx, cancel := context.WithTimeout(within(t), 300*time.Millisecond)
	defer cancel()
	o, err := run(ctx, client, connect.NewRequest(shell("sleep "+marker+" & (setsid sleep "+marker+" &); sleep "+marker)))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded || o.ends != 0 {
		t.Errorf("got %v and %d ends, want deadline_exceeded alone", err, o.ends)
	}
	eventually(t, "the end of the process", func() bool {
		list, err := client.List(within(t), connect.NewRequest(&spec.ListRequest{}))
		return err == nil && len(list.Msg.GetProcesses()) == 0
	})
	eventually(t, "the end of the tree", func() bool { return !alive(marker) })
}

func TestProcessOutlivesItsStream(t *testing.T) {
	client := start(t, nil).processes()
	ctx, leave := context.WithCancel(within(t))
	fifo := filepath.Join(t.TempDir(), "go")
	_, pid := begin(t, ctx, client, shell("mkfifo "+fifo+"; echo unheard; read line <"+fifo+"; echo heard"))
	leave()
	connected, err := client.Connect(within(t), connect.NewRequest(&spec.ConnectRequest{Process: byPid(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	if !connected.Receive() || connected.Msg().GetEvent().GetStart().GetPid() != pid {
		t.Fatalf("no start event: %v", connected.Err())
	}
	eventually(t, "the pipe", func() bool { return exists(fifo) })
	if err := os.WriteFile(fifo, []byte("now\n"), 0); err != nil {
		t.Fatal(err)
	}
	var o outcome
	for connected.Receive() {
		o.add(connected.Msg().GetEvent())
	}
	if connected.Err() != nil || !strings.HasSuffix(o.stdout, "heard\n") || o.ends != 1 {
		t.Errorf("%+v %v", o, connected.Err())
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestOutputIsCompleteAndMemoryBounded(t *testing.T) {
	d := start(t, nil)
	client := processconnect.NewProcessClient(d.client, d.URL)
	stream, err := client.Start(within(t), connect.NewRequest(shell(fmt.Sprintf("head -c %d /dev/zero", outputSize))))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	total, ended := 0, false
	for stream.Receive() {
		total += len(stream.Msg().GetEvent().GetData().GetStdout())
		ended = ended || stream.Msg().GetEvent().GetEnd() != nil
	}
	if stream.Err() != nil || total != outputSize || !ended {
		t.Errorf("%d of %d bytes, ended %v, %v", total, outputSize, ended, stream.Err())
	}
	if peak := peakMemory(t, d.cmd.Process.Pid); peak > peakLimit {
		t.Errorf("envd grew to %d MiB", peak>>20)
	}
}

func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

func TestBackgroundChildDoesNotHoldTheCommand(t *testing.T) {
	client := start(t, nil).processes()
	marker := unique(t)
	o := mustRun(t, client, shell("sleep "+marker+" & echo done"))
	if o.stdout != "done\n" || o.end.GetExitCode() != 0 {
		t.Errorf("%+v", o)
	}
	if !alive(marker) {
		t.Error("the background child was killed with its command")
	}
}

func TestShutdownEndsEverything(t *testing.T) {
	d := start(t, nil)
	marker := unique(t)
	mustRun(t, d.processes(), shell("setsid sleep "+marker+" >/dev/null 2>&1 &"))
	stream, _ := begin(t, within(t), d.processes(), shell("trap '' TERM; sleep "+marker+" & wait; wait"))
	d.stop(t)
	for stream.Receive() {
	}
	if err := stream.Err(); err != nil && !errors.Is(err, io.EOF) && connect.CodeOf(err) != connect.CodeUnavailable && connect.CodeOf(err) != connect.CodeUnknown {
		t.Logf("the stream ended with %v", err)
	}
	if alive(marker) {
		t.Error("a process survived envd")
	}
}

func TestKeepalive(t *testing.T) {
	d := start(t, nil)
	req := connect.NewRequest(shell("exec sleep 1000"))
	req.Header().Set("Keepalive-Ping-Interval", "1")
	stream, err := d.processes().Start(within(t), req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if stream.Msg().GetEvent().GetKeepalive() != nil {
			return
		}
	}
	t.Fatalf("no keepalive: %v", stream.Err())
}
