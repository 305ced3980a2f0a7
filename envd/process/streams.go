package process

import (
	"fmt"
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	spec "navix.sh/agentbox/envd/spec/process"
)

// pipeChunk and terminalChunk bound one data event, as upstream does.
const (
	pipeChunk     = 32 << 10
	terminalChunk = 16 << 10
)

// pipeCapacity lets a command print on while envd waits for a CPU; four times the kernel's default.
const pipeCapacity = 256 << 10

// stream is one readable end of a process.
type stream struct {
	file  *os.File
	chunk int
	event func([]byte) *spec.ProcessEvent_DataEvent
}

func stdoutEvent(b []byte) *spec.ProcessEvent_DataEvent {
	return &spec.ProcessEvent_DataEvent{Output: &spec.ProcessEvent_DataEvent_Stdout{Stdout: b}}
}

func stderrEvent(b []byte) *spec.ProcessEvent_DataEvent {
	return &spec.ProcessEvent_DataEvent{Output: &spec.ProcessEvent_DataEvent_Stderr{Stderr: b}}
}

func terminalEvent(b []byte) *spec.ProcessEvent_DataEvent {
	return &spec.ProcessEvent_DataEvent{Output: &spec.ProcessEvent_DataEvent_Pty{Pty: b}}
}

// ends are the two sides of a process's streams.
type ends struct {
	child   []*os.File // 0, 1 and 2
	streams []stream
	inputs  []*input
}

func (e ends) closeParents() {
	for _, s := range e.streams {
		s.file.Close()
	}
	for _, in := range e.inputs {
		in.close()
	}
}

// open makes the streams that the launch asks for.
func (p *process) open(l launch) (ends, error) {
	if l.terminal != nil {
		return p.openTerminal(l)
	}
	var e ends
	stdin, err := os.Open(os.DevNull)
	if l.stdin {
		var writer *os.File
		if stdin != nil {
			stdin.Close()
		}
		stdin, writer, err = os.Pipe()
		if err == nil {
			p.stdin = newInput(writer)
			e.inputs = append(e.inputs, p.stdin)
		}
	}
	if err != nil {
		return ends{}, fmt.Errorf("cannot open stdin: %w", err)
	}
	e.child = append(e.child, stdin)
	for _, event := range []func([]byte) *spec.ProcessEvent_DataEvent{stdoutEvent, stderrEvent} {
		reader, writer, err := os.Pipe()
		if err != nil {
			closeAll(e.child)
			e.closeParents()
			return ends{}, fmt.Errorf("cannot open the output: %w", err)
		}
		_, _ = unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, pipeCapacity) // a user's limit may forbid it
		e.child = append(e.child, writer)
		e.streams = append(e.streams, stream{file: reader, chunk: pipeChunk, event: event})
	}
	return e, nil
}

// openTerminal opens a terminal as the user, so that the user owns it.
func (p *process) openTerminal(l launch) (ends, error) {
	window, err := windowSize(l.terminal.GetSize())
	if err != nil {
		return ends{}, err
	}
	var master, slave *os.File
	err = l.user.Act(func() (err error) {
		master, slave, err = pty.Open()
		return err
	})
	if err == nil {
		err = pty.Setsize(master, window)
	}
	if err != nil {
		closeAll([]*os.File{master, slave})
		return ends{}, err
	}
	p.tty = newInput(master)
	return ends{
		child:   []*os.File{slave, slave, slave},
		streams: []stream{{file: master, chunk: terminalChunk, event: terminalEvent}},
		inputs:  []*input{p.tty},
	}, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		if file != nil {
			file.Close()
		}
	}
}
