// Package process starts, connects to and drives the processes of a sandbox: the Connect service process.Process.
package process

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"connectrpc.com/connect"

	"navix.sh/agentbox/envd/reaper"
	"navix.sh/agentbox/envd/rpc"
	spec "navix.sh/agentbox/envd/spec/process"
	"navix.sh/agentbox/envd/spec/process/processconnect"
	"navix.sh/agentbox/envd/state"
	"navix.sh/agentbox/envd/users"
)

// Service implements process.Process with E2B's codes and messages.
type Service struct {
	manager  *Manager
	state    *state.State
	template map[string]string
}

var _ processconnect.ProcessHandler = (*Service)(nil)

// NewService serves the processes of manager. template is the environment that the sandbox's image gives them.
func NewService(manager *Manager, state *state.State, template map[string]string) *Service {
	return &Service{manager: manager, state: state, template: template}
}

// List returns the live processes.
func (s *Service) List(context.Context, *connect.Request[spec.ListRequest]) (*connect.Response[spec.ListResponse], error) {
	list := &spec.ListResponse{}
	for _, p := range s.manager.list() {
		list.Processes = append(list.Processes, &spec.ProcessInfo{Config: p.config, Pid: uint32(p.child.Pid), Tag: p.tag})
	}
	return connect.NewResponse(list), nil
}

// Start runs a command and streams its events. The command outlives the stream, but not the request's deadline.
func (s *Service) Start(ctx context.Context, req *connect.Request[spec.StartRequest], out *connect.ServerStream[spec.StartResponse]) error {
	user, err := rpc.User(s.state, req.Header())
	if err != nil {
		return err
	}
	l, err := s.prepare(ctx, user, req.Msg)
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	p, events, err := s.manager.start(l)
	switch {
	case errors.Is(err, errShuttingDown):
		return connect.NewError(connect.CodeUnavailable, err)
	case exhausted(err):
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the sandbox is at its limit of processes, memory or open files: %w", err))
	case err != nil && l.terminal != nil:
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("error starting pty with command '%s': %w", l.config.GetCmd(), err))
	case err != nil:
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("error starting process '%s': %w", l.config.GetCmd(), err))
	}
	defer events.leave()
	// A stream has one terminal status: the end of the process, or the deadline that killed it.
	ended := false
	err = relay(ctx, p, events, req.Header().Get(rpc.KeepaliveHeader), func(event *spec.ProcessEvent) error {
		if event.GetEnd() != nil {
			if p.expired.Load() {
				return nil
			}
			ended = true
		}
		return out.Send(&spec.StartResponse{Event: event})
	})
	if !ended && (p.expired.Load() || errors.Is(ctx.Err(), context.DeadlineExceeded)) {
		p.awaitExit(ctx)
		return rpc.DeadlineExceeded(fmt.Sprintf("the deadline of process %d has passed and it was killed", p.child.Pid))
	}
	return err
}

func exhausted(err error) bool {
	for _, limit := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, limit) {
			return true
		}
	}
	return false
}

// Connect streams the events of a process from now on, or just its end when it ended a short while ago.
func (s *Service) Connect(ctx context.Context, req *connect.Request[spec.ConnectRequest], out *connect.ServerStream[spec.ConnectResponse]) error {
	p, err := s.find(req.Msg.GetProcess(), true)
	if err != nil {
		return err
	}
	events := p.out.subscribe()
	defer events.leave()
	return relay(ctx, p, events, req.Header().Get(rpc.KeepaliveHeader), func(event *spec.ProcessEvent) error {
		return out.Send(&spec.ConnectResponse{Event: event})
	})
}

// relay sends the start, every event up to the end, and keepalives in between.
func relay(ctx context.Context, p *process, events *subscriber, keepalive string, send func(*spec.ProcessEvent) error) error {
	start := &spec.ProcessEvent_StartEvent{Pid: uint32(p.child.Pid)}
	if err := send(&spec.ProcessEvent{Event: &spec.ProcessEvent_Start{Start: start}}); err != nil {
		return err
	}
	beat := rpc.NewKeepalive(keepalive)
	defer beat.Stop()
	for {
		event, err := events.next(ctx, beat.C)
		switch {
		case errors.Is(err, errLagging):
			return connect.NewError(connect.CodeDataLoss, err)
		case err != nil:
			return rpc.Ended(err)
		case event == nil:
			event = &spec.ProcessEvent{Event: &spec.ProcessEvent_Keepalive{Keepalive: &spec.ProcessEvent_KeepAlive{}}}
		}
		if err := send(event); err != nil {
			return err
		}
		if event.GetEnd() != nil {
			return nil
		}
		beat.Reset()
	}
}

func (s *Service) prepare(ctx context.Context, user users.User, req *spec.StartRequest) (launch, error) {
	config := req.GetProcess()
	if config == nil {
		config = &spec.ProcessConfig{}
	}
	l := launch{config: config, tag: req.Tag, terminal: req.GetPty(), stdin: req.Stdin == nil || req.GetStdin()}
	l.user = user
	l.argv = append([]string{config.GetCmd()}, config.GetArgs()...)
	l.deadline, _ = ctx.Deadline()
	var err error
	if l.cwd, err = workdir(user, config.GetCwd(), s.state.Settings().DefaultWorkdir); err != nil {
		return l, err
	}
	if l.env, err = environment(user, s.template, s.state.Globals(), config.GetEnvs()); err != nil {
		return l, err
	}
	l.path, err = executable(user, config.GetCmd(), l.cwd, l.env)
	return l, err
}

// Update resizes the terminal of a process.
func (s *Service) Update(_ context.Context, req *connect.Request[spec.UpdateRequest]) (*connect.Response[spec.UpdateResponse], error) {
	p, err := s.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if req.Msg.Pty != nil {
		if err := p.resize(req.Msg.GetPty().GetSize()); err != nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error resizing tty: %w", err))
		}
	}
	return connect.NewResponse(&spec.UpdateResponse{}), nil
}

// SendSignal signals a process and everything it started. Only SIGKILL and SIGTERM exist here.
func (s *Service) SendSignal(ctx context.Context, req *connect.Request[spec.SendSignalRequest]) (*connect.Response[spec.SendSignalResponse], error) {
	p, err := s.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	var sig syscall.Signal
	switch req.Msg.GetSignal() {
	case spec.Signal_SIGNAL_SIGKILL:
		sig = syscall.SIGKILL
	case spec.Signal_SIGNAL_SIGTERM:
		sig = syscall.SIGTERM
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid signal: %s; use SIGNAL_SIGKILL or SIGNAL_SIGTERM", req.Msg.GetSignal()))
	}
	if err := p.signal(sig); errors.Is(err, reaper.ErrExited) {
		return nil, notFound(req.Msg.GetProcess())
	}
	if sig == syscall.SIGKILL {
		p.awaitExit(ctx)
	}
	return connect.NewResponse(&spec.SendSignalResponse{}), nil
}

// find returns the selected process or the error to answer with.
func (s *Service) find(selector *spec.ProcessSelector, late bool) (*process, error) {
	var match func(*process) bool
	switch by := selector.GetSelector().(type) {
	case *spec.ProcessSelector_Pid:
		match = func(p *process) bool { return uint32(p.child.Pid) == by.Pid }
	case *spec.ProcessSelector_Tag:
		match = func(p *process) bool { return p.tag != nil && *p.tag == by.Tag }
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("the process selector is empty: give a pid or a tag"))
	}
	if p := s.manager.find(match, late); p != nil {
		return p, nil
	}
	return nil, notFound(selector)
}

func notFound(selector *spec.ProcessSelector) error {
	if by, ok := selector.GetSelector().(*spec.ProcessSelector_Tag); ok {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", by.Tag))
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", selector.GetPid()))
}
