package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

var (
	errStdinClosed = errors.New("stdin not enabled or closed")
	errNoTerminal  = errors.New("tty not assigned to process")
	errTerminal    = errors.New("cannot write to stdin of a process that has a tty; send pty input instead")
)

// input is the writing end of a process's stdin or terminal. One writer at a time; a writer whose request ends stops
// waiting for a process that does not read.
type input struct {
	file *os.File
	turn chan struct{} // holds one token while nobody writes
	gone chan struct{} // closed by close
	once sync.Once
}

func newInput(file *os.File) *input {
	in := &input{file: file, turn: make(chan struct{}, 1), gone: make(chan struct{})}
	in.turn <- struct{}{}
	return in
}

func (in *input) write(ctx context.Context, data []byte) error {
	select {
	case <-in.turn:
	case <-in.gone:
		return errStdinClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { in.turn <- struct{}{} }()
	if err := in.file.SetWriteDeadline(time.Time{}); err != nil {
		return closedOr(err)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = in.file.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	_, err := in.file.Write(data)
	if !stop() {
		<-interrupted // or it would interrupt the next writer
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return ctx.Err()
	}
	return closedOr(err)
}

func (in *input) close() {
	in.once.Do(func() {
		close(in.gone)
		_ = in.file.Close()
	})
}

func closedOr(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return errStdinClosed
	}
	return err
}
