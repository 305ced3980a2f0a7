package command

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	spec "navix.sh/agentbox/envd/spec/process"
)

func TestStdin(t *testing.T) {
	client := start(t, nil).processes()
	ctx := within(t)
	send := func(pid uint32, in *spec.ProcessInput) error {
		_, err := client.SendInput(ctx, connect.NewRequest(&spec.SendInputRequest{Process: byPid(pid), Input: in}))
		return err
	}
	text := func(s string) *spec.ProcessInput {
		return &spec.ProcessInput{Input: &spec.ProcessInput_Stdin{Stdin: []byte(s)}}
	}
	key := &spec.ProcessInput{Input: &spec.ProcessInput_Pty{Pty: []byte("x")}}

	t.Run("absent means open", func(t *testing.T) {
		stream, pid := begin(t, ctx, client, &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "cat"}})
		if err := send(pid, text("hello ")); err != nil {
			t.Fatal(err)
		}
		in := client.StreamInput(ctx)
		for _, req := range []*spec.StreamInputRequest{
			{Event: &spec.StreamInputRequest_Start{Start: &spec.StreamInputRequest_StartEvent{Process: byPid(pid)}}},
			{Event: &spec.StreamInputRequest_Keepalive{Keepalive: &spec.StreamInputRequest_KeepAlive{}}},
			{Event: &spec.StreamInputRequest_Data{Data: &spec.StreamInputRequest_DataEvent{Input: text("world")}}},
		} {
			if err := in.Send(req); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := in.CloseAndReceive(); err != nil {
			t.Fatal(err)
		}
		if err := send(pid, key); connect.CodeOf(err) != connect.CodeInternal || !strings.Contains(err.Error(), "error writing to tty") {
			t.Errorf("pty input without a pty: %v", err)
		}
		if err := send(pid, nil); connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("no input: %v", err)
		}
		if _, err := client.CloseStdin(ctx, connect.NewRequest(&spec.CloseStdinRequest{Process: byPid(pid)})); err != nil {
			t.Fatal(err)
		}
		var o outcome
		for stream.Receive() {
			o.add(stream.Msg().GetEvent())
		}
		if o.stdout != "hello world" || o.end.GetExitCode() != 0 {
			t.Errorf("%+v", o)
		}
	})
	t.Run("false means none", func(t *testing.T) {
		if o := mustRun(t, client, shell("cat; echo done")); o.stdout != "done\n" {
			t.Errorf("%+v", o)
		}
		_, pid := begin(t, ctx, client, shell("exec sleep 1000"))
		if err := send(pid, text("x")); connect.CodeOf(err) != connect.CodeInternal || !strings.Contains(err.Error(), "error writing to stdin") {
			t.Errorf("input without stdin: %v", err)
		}
	})
	t.Run("a process that does not read holds up no request beyond its deadline", func(t *testing.T) {
		_, pid := begin(t, ctx, client, &spec.StartRequest{Process: &spec.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}}})
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_, err := client.SendInput(short, connect.NewRequest(&spec.SendInputRequest{Process: byPid(pid), Input: text(strings.Repeat("x", 1<<20))}))
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Errorf("got %v", err)
		}
	})
}

func TestTerminal(t *testing.T) {
	client := start(t, nil).processes()
	ctx := within(t)
	req := &spec.StartRequest{
		Process: &spec.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "stty -echo; echo ready; read x; stty size; exit 7"}},
		Pty:     &spec.PTY{Size: &spec.PTY_Size{Cols: 80, Rows: 24}},
	}
	stream, pid := begin(t, ctx, client, req)
	var o outcome
	for !strings.Contains(o.pty, "ready") && stream.Receive() {
		o.add(stream.Msg().GetEvent())
	}
	_, err := client.Update(ctx, connect.NewRequest(&spec.UpdateRequest{Process: byPid(pid), Pty: &spec.PTY{Size: &spec.PTY_Size{Cols: 101, Rows: 33}}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CloseStdin(ctx, connect.NewRequest(&spec.CloseStdinRequest{Process: byPid(pid)})); connect.CodeOf(err) != connect.CodeUnknown {
		t.Errorf("CloseStdin on a terminal: %v", err)
	}
	input := &spec.ProcessInput{Input: &spec.ProcessInput_Pty{Pty: []byte("\n")}}
	if _, err := client.SendInput(ctx, connect.NewRequest(&spec.SendInputRequest{Process: byPid(pid), Input: input})); err != nil {
		t.Fatal(err)
	}
	for stream.Receive() {
		o.add(stream.Msg().GetEvent())
	}
	if stream.Err() != nil || !strings.Contains(o.pty, "33 101") || o.end.GetExitCode() != 7 {
		t.Errorf("%+v %v", o, stream.Err())
	}
	_, pid = begin(t, ctx, client, shell("exec sleep 1000"))
	_, err = client.Update(ctx, connect.NewRequest(&spec.UpdateRequest{Process: byPid(pid), Pty: &spec.PTY{Size: &spec.PTY_Size{Cols: 1, Rows: 1}}}))
	if connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("resize without a terminal: %v", err)
	}
}
