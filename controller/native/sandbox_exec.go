package native

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/envd/spec/process"
	"navix.sh/agentbox/envd/spec/process/processconnect"
)

type execBody struct {
	Command        string `json:"command"`
	TimeoutSeconds int    `json:"timeoutSeconds"`
}

type execResult struct {
	ExitCode int32  `json:"exitCode"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
}

const (
	execTimeout = 60 * time.Second
	// maxOutput bounds each of the two outputs that an answer carries, 1 MiB; what comes after is left out and said.
	maxOutput      = 1 << 20
	truncatedNote  = "\n[the rest was left out: the output is larger than 1 MiB]\n"
	envdTokenField = "X-Access-Token"
)

// execCommand runs one command in a shell of the sandbox's user, through its envd.
func execCommand(c *call) (*response, error) {
	body, err := decode[execBody](c)
	if err != nil {
		return nil, err
	}
	s, err := c.findSandbox(access.VerbUse, access.OpSandboxExec, false)
	if err != nil {
		return nil, err
	}
	route, routed := c.Claims.Route(s.ID)
	if !routed {
		return nil, conflict("wait until it runs", "the sandbox is %s and takes no commands", s.Status)
	}
	if err := c.release(s.ID); err != nil {
		return nil, err
	}
	defer claim.Hold(c.Claims, s.ID)()
	timeout := execTimeout
	if body.TimeoutSeconds > 0 {
		timeout = time.Duration(body.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	result, err := runCommand(ctx, route, body.Command)
	switch {
	case err == nil:
		return ok(result), nil
	case c.ctx.Err() == nil && (errors.Is(ctx.Err(), context.DeadlineExceeded) || connect.CodeOf(err) == connect.CodeDeadlineExceeded):
		return nil, refuse(http.StatusGatewayTimeout, codeTimeout, "give it a longer timeoutSeconds, or run it with an E2B SDK",
			"the command did not end within %s and was stopped", timeout)
	}
	e := refuse(http.StatusServiceUnavailable, codeUnavailable, "check the sandbox's status, then try again", "the sandbox's envd did not run the command to its end")
	e.cause = err
	return nil, e
}

func runCommand(ctx context.Context, route claim.Route, command string) (execResult, error) {
	hc := sandboxClient(route, envdPort)
	defer hc.CloseIdleConnections()
	stdin := false
	req := connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", command}},
		Stdin:   &stdin,
	})
	if route.AccessToken != "" {
		req.Header().Set(envdTokenField, route.AccessToken)
	}
	stream, err := processconnect.NewProcessClient(hc, "http://sandbox").Start(ctx, req)
	if err != nil {
		return execResult{}, err
	}
	defer stream.Close() //nolint:errcheck // it has been read to its end, or its error is known
	var out, errOut bytes.Buffer
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Data:
			appendBounded(&out, e.Data.GetStdout())
			appendBounded(&errOut, e.Data.GetStderr())
		case *process.ProcessEvent_End:
			return execResult{ExitCode: e.End.GetExitCode(), Stdout: out.String(), Stderr: errOut.String()}, nil
		}
	}
	if err := stream.Err(); err != nil {
		return execResult{}, err
	}
	return execResult{}, errors.New("envd ended the stream before the command's end")
}

func appendBounded(b *bytes.Buffer, data []byte) {
	room := maxOutput - b.Len()
	switch {
	case room < 0 || len(data) == 0:
	case len(data) <= room:
		b.Write(data)
	default:
		b.Write(data[:room])
		b.WriteString(truncatedNote)
	}
}

// createExecToken would open a terminal in a browser; this platform has none.
func createExecToken(c *call) (*response, error) {
	if _, err := c.findSandbox(access.VerbUse, access.OpSandboxExecToken, false); err != nil {
		return nil, err
	}
	return nil, notImplemented("open a terminal with an E2B SDK (sandbox.pty)", "terminals in a browser are not implemented")
}
