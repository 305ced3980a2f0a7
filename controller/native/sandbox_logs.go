package native

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/podlog"
)

type logEntry struct {
	Timestamp time.Time `json:"timestamp,omitzero"`
	Container string    `json:"container"`
	Log       string    `json:"log"`
}

type logsResult struct {
	SandboxID  string     `json:"sandboxId"`
	Namespace  string     `json:"namespace"`
	PodName    string     `json:"podName"`
	CapturedAt time.Time  `json:"capturedAt"`
	Entries    []logEntry `json:"entries"`
	Truncated  bool       `json:"truncated"`
	TotalBytes int64      `json:"totalBytes"`
	Source     string     `json:"source"`
	Containers []string   `json:"containers"`
}

const (
	defaultLogLines = 1000
	// maxLogBytes bounds one answer; the newest lines are kept.
	maxLogBytes = 4 << 20
	maxLogLine  = 1 << 20
)

// getSandboxLogs reads what a sandbox's container wrote since the sandbox began. A Pod serves one sandbox after
// another: nothing of what it wrote before, and nothing of what it writes after, is this sandbox's.
func getSandboxLogs(c *call) (*response, error) {
	s, err := c.findSandbox(access.VerbGet, "", true)
	if err != nil {
		return nil, err
	}
	if source := c.query.Get("source"); source != "" && source != "live" {
		return nil, notImplemented("leave source out", "log source %s is not implemented", source)
	}
	if !s.TerminatedAt.IsZero() {
		return nil, notImplemented("read logs while the sandbox runs; its record has the reason and the exit code", "logs of sandboxes that have ended are not kept")
	}
	if c.Logs == nil {
		return nil, notImplemented("ask the operator", "this deployment does not serve logs")
	}
	containers, err := c.containers(s)
	if err != nil {
		return nil, err
	}
	container := containers[0]
	if want := c.query.Get("container"); want != "" {
		if !slices.Contains(containers, want) {
			return nil, badParameter(nearest("containers", want, containers), "the sandbox has no container %q", want)
		}
		container = want
	}
	q := podlog.Query{Namespace: s.Owner.Namespace, Pod: s.Pod, Container: container, Since: s.ClaimedAt, Lines: defaultLogLines}
	lines, sent := c.number("lines")
	if sent {
		q.Lines = int64(lines)
	}
	if c.flag("follow") {
		return c.followLogs(s, q, sent && lines == 0)
	}
	r := logsResult{
		SandboxID: s.ID, Namespace: s.Owner.Namespace, PodName: s.Pod, CapturedAt: c.Now().UTC(),
		Entries: []logEntry{}, Source: "live", Containers: containers,
	}
	if sent && lines == 0 {
		return ok(r), nil
	}
	if err := c.snapshot(q, &r); err != nil {
		return nil, err
	}
	// The Pod may have gone on to another sandbox while its log was read.
	if now, err := c.Claims.Get(c.ctx, s.ID, false); err != nil || !now.TerminatedAt.IsZero() || now.Pod != s.Pod {
		return nil, notImplemented("read logs while the sandbox runs; its record has the reason and the exit code", "the sandbox ended while its log was read, and logs are not kept")
	}
	return ok(r), nil
}

// containers are the names of a sandbox's containers, its own one first.
func (c *call) containers(s claim.Sandbox) ([]string, error) {
	var pod corev1.Pod
	err := c.Client.Get(c.ctx, client.ObjectKey{Namespace: s.Owner.Namespace, Name: s.Pod}, &pod)
	if apierrors.IsNotFound(err) || (err == nil && len(pod.Spec.Containers) == 0) {
		return nil, refuse(404, codeNotFound, "read it again: it may have just ended", "the sandbox's Pod is gone")
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, container := range pod.Spec.Containers {
		out = append(out, container.Name)
	}
	return out, nil
}

func (c *call) snapshot(q podlog.Query, r *logsResult) error {
	body, err := c.Logs(c.ctx, q)
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // it was only read
	err = eachLine(body, func(e logEntry) error {
		if e.Timestamp.Before(q.Since) {
			return nil
		}
		e.Container = q.Container
		r.Entries = append(r.Entries, e)
		r.TotalBytes += int64(len(e.Log))
		for r.TotalBytes > maxLogBytes && len(r.Entries) > 1 {
			r.TotalBytes -= int64(len(r.Entries[0].Log))
			r.Entries = r.Entries[1:]
			r.Truncated = true
		}
		return nil
	})
	if int64(len(r.Entries)) >= q.Lines {
		r.Truncated = true
	}
	return err
}

// followLogs streams lines until the sandbox ends or the client goes.
func (c *call) followLogs(s claim.Sandbox, q podlog.Query, onlyNew bool) (*response, error) {
	route, routed := c.Claims.Route(s.ID)
	if !routed {
		return nil, refuse(503, codeUnavailable, "wait until it runs", "the sandbox is %s", s.Status)
	}
	if onlyNew {
		q.Since = c.Now()
		q.Lines = 0
	}
	q.Follow = true
	ctx, stop := context.WithCancel(c.ctx)
	body, err := c.Logs(ctx, q)
	if err != nil {
		stop()
		return nil, err
	}
	return &response{stream: func(events *eventStream) error {
		defer stop()
		defer body.Close() //nolint:errcheck // it was only read
		lines := make(chan logEntry)
		go func() {
			defer close(lines)
			_ = eachLine(body, func(e logEntry) error { // it ends when the container or the client does
				select {
				case lines <- e:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		err := c.relay(ctx, events, lines, route.Done, q)
		stop()
		_ = body.Close() // wakes the reader
		for range lines {
			// Wait for the reader's end.
		}
		return err
	}}, nil
}

// relay sends lines until the sandbox ends, the client goes, or the key does not work any more.
func (c *call) relay(ctx context.Context, events *eventStream, lines <-chan logEntry, ended <-chan struct{}, q podlog.Query) error {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	every := time.NewTicker(lookAgain)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return nil
		case <-c.Stopping:
			return nil
		case <-every.C:
			if !c.keyWorks() {
				return nil
			}
		case <-alive.C:
			if err := events.alive(); err != nil {
				return err
			}
		case e, open := <-lines:
			if !open {
				return nil
			}
			select {
			case <-ended: // the line may be the next sandbox's
				return nil
			default:
			}
			if e.Timestamp.Before(q.Since) {
				continue
			}
			e.Container = q.Container
			if err := events.send(e); err != nil {
				return err
			}
		}
	}
}

// eachLine takes a log apart: a time, a blank, and the text, a line each. Text that is not UTF-8 is made so.
func eachLine(r io.Reader, f func(logEntry) error) error {
	buf := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(buf)
		if line != "" || err == nil {
			if ferr := f(parseLine(line)); ferr != nil {
				return ferr
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine reads to the end of a line. Of a longer one than maxLogLine it returns the beginning.
func readLine(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		part, err := r.ReadSlice('\n')
		if room := maxLogLine - b.Len(); room > 0 {
			b.Write(part[:min(len(part), room)])
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimSuffix(b.String(), "\n"), err
		}
	}
}

func parseLine(line string) logEntry {
	line = strings.ToValidUTF8(line, "\uFFFD")
	stamp, text, _ := strings.Cut(line, " ")
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return logEntry{Log: line}
	}
	return logEntry{Timestamp: t.UTC(), Log: text}
}
