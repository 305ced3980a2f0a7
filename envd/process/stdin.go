package process

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"navix.sh/agentbox/envd/rpc"
	spec "navix.sh/agentbox/envd/spec/process"
)

// SendInput writes to the stdin or the terminal of a process; it returns once the process's pipe has taken all of it.
func (s *Service) SendInput(ctx context.Context, req *connect.Request[spec.SendInputRequest]) (*connect.Response[spec.SendInputResponse], error) {
	p, err := s.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if err := p.write(ctx, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&spec.SendInputResponse{}), nil
}

// StreamInput writes a stream of inputs to one process. Its first event names the process.
func (s *Service) StreamInput(ctx context.Context, in *connect.ClientStream[spec.StreamInputRequest]) (*connect.Response[spec.StreamInputResponse], error) {
	var p *process
	for in.Receive() {
		switch event := in.Msg().GetEvent().(type) {
		case *spec.StreamInputRequest_Start:
			found, err := s.find(event.Start.GetProcess(), false)
			if err != nil {
				return nil, err
			}
			p = found
		case *spec.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the first event of the stream must be start, with the process to write to"))
			}
			if err := p.write(ctx, event.Data.GetInput()); err != nil {
				return nil, err
			}
		case *spec.StreamInputRequest_Keepalive:
		default:
			return nil, connect.NewError(connect.CodeUnimplemented, errors.New("the event is empty: send start, data or keepalive"))
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&spec.StreamInputResponse{}), nil
}

// CloseStdin closes the stdin of a process, as the end of a file. A terminal has no such end: send it Ctrl+D.
func (s *Service) CloseStdin(_ context.Context, req *connect.Request[spec.CloseStdinRequest]) (*connect.Response[spec.CloseStdinResponse], error) {
	p, err := s.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if p.tty != nil {
		return nil, connect.NewError(connect.CodeUnknown, errors.New("error closing stdin: cannot close the stdin of a process with a tty; send Ctrl+D (0x04) instead"))
	}
	if p.stdin != nil {
		p.stdin.close()
	}
	return connect.NewResponse(&spec.CloseStdinResponse{}), nil
}

// write returns Connect errors.
func (p *process) write(ctx context.Context, in *spec.ProcessInput) error {
	var what string
	var err error
	switch data := in.GetInput().(type) {
	case *spec.ProcessInput_Stdin:
		what = "stdin"
		switch {
		case p.tty != nil:
			err = errTerminal
		case p.stdin == nil:
			err = errStdinClosed
		default:
			err = p.stdin.write(ctx, data.Stdin)
		}
	case *spec.ProcessInput_Pty:
		what, err = "tty", errNoTerminal
		if p.tty != nil {
			err = p.tty.write(ctx, data.Pty)
		}
	default:
		return connect.NewError(connect.CodeUnimplemented, errors.New("the input is empty: give stdin or pty"))
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return rpc.Ended(ctx.Err())
	default:
		return connect.NewError(connect.CodeInternal, fmt.Errorf("error writing to %s: %w", what, err))
	}
}
