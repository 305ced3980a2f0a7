package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"

	"navix.sh/agentbox/envd/reaper"
	spec "navix.sh/agentbox/envd/spec/process"
)

// quiet is how long the output may stay silent, after the process itself has ended, before the end is announced although
// a background child still holds the output open. What such a child prints later is discarded.
const quiet = 2 * time.Second

// process is one started command, its streams and those who listen.
type process struct {
	child  *reaper.Child
	config *spec.ProcessConfig
	tag    *string
	out    *output
	stdin  *input // nil when the command has no stdin to write to
	tty    *input // nil when it has no terminal
	group  *group // nil where cgroups cannot be written
	mark   mark

	expired  atomic.Bool // the deadline killed it
	deadline *time.Timer // nil without one
}

// pump publishes what the stream yields until it ends, or until the process is over and the stream stays quiet. It
// calls flushed once nothing more will be published, and keeps draining a stream that others hold open: a reader
// that went away would kill them.
func (p *process) pump(s stream, flushed func()) {
	defer s.file.Close()
	buffer := make([]byte, s.chunk)
	for {
		if p.child.Exited() {
			_ = s.file.SetReadDeadline(time.Now().Add(quiet))
		}
		n, err := s.file.Read(buffer)
		if n > 0 {
			data := append([]byte(nil), buffer[:n]...)
			p.out.publish(&spec.ProcessEvent{Event: &spec.ProcessEvent_Data{Data: s.event(data)}})
		}
		if err != nil {
			flushed()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				_ = s.file.SetReadDeadline(time.Time{})
				_, _ = io.Copy(io.Discard, s.file)
			}
			return
		}
	}
}

// run pumps the streams and returns once the end has been announced. Pumps of streams that background children hold
// open go on until those end; done is called by each.
func (p *process) run(streams []stream, started, done func()) {
	var flushed sync.WaitGroup
	for _, s := range streams {
		flushed.Add(1)
		started()
		go func() {
			defer done()
			p.pump(s, sync.OnceFunc(flushed.Done))
		}()
	}
	<-p.child.Done()
	for _, s := range streams {
		// Wakes a reader that waits since before the exit; the pump sets its own deadlines from now on.
		_ = s.file.SetReadDeadline(time.Now().Add(quiet))
	}
	flushed.Wait()
	if p.deadline != nil {
		p.deadline.Stop()
	}
	if p.stdin != nil {
		p.stdin.close()
	}
	p.out.finish(endEvent(p.child.Status()))
}

// kill ends the process with everything it started.
func (p *process) kill() error {
	return p.signal(syscall.SIGKILL)
}

// awaitExit waits for a killed process to be gone, so that who is told of the kill finds it done. What the kernel holds is
// not waited for. The request may have ended: its deadline is a reason for the kill.
func (p *process) awaitExit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	select {
	case <-p.child.Done():
	case <-ctx.Done():
	}
}

// signal reaches the whole tree; it answers reaper.ErrExited once the process itself is gone.
func (p *process) signal(sig syscall.Signal) error {
	return p.child.Guard(func(pid int) error {
		if sig == syscall.SIGKILL && p.group != nil {
			p.group.kill()
		}
		signalTree(func() map[int]bool { return tree(pid, p.mark) }, sig)
		return nil
	})
}

// resize changes the size of the terminal.
func (p *process) resize(size *spec.PTY_Size) error {
	if p.tty == nil {
		return errNoTerminal
	}
	window, err := windowSize(size)
	if err != nil {
		return err
	}
	return pty.Setsize(p.tty.file, window)
}

// windowSize gives a terminal of the usual size to who asked for none.
func windowSize(size *spec.PTY_Size) (*pty.Winsize, error) {
	cols, rows := size.GetCols(), size.GetRows()
	if cols > 0xffff || rows > 0xffff {
		return nil, fmt.Errorf("a terminal of %d columns and %d rows is too large: at most 65535 each", cols, rows)
	}
	if cols == 0 {
		cols = 80
	}
	if rows == 0 {
		rows = 24
	}
	return &pty.Winsize{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

// endEvent words a status as os.ProcessState does, which is what the SDKs and the E2B CLI look for.
func endEvent(status syscall.WaitStatus) *spec.ProcessEvent {
	end := &spec.ProcessEvent_EndEvent{ExitCode: -1}
	switch {
	case status.Exited():
		end.Exited, end.ExitCode = true, int32(status.ExitStatus())
		end.Status = fmt.Sprintf("exit status %d", status.ExitStatus())
	case status.Signaled():
		end.Status = "signal: " + status.Signal().String()
		if status.CoreDump() {
			end.Status += " (core dumped)"
		}
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	return &spec.ProcessEvent{Event: &spec.ProcessEvent_End{End: end}}
}
