package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/embedded/runtime"
)

// prober runs the probes of all Pods.
type prober struct {
	client    *http.Client
	transport *http.Transport
	dial      claim.DialFunc
}

func newProber(dial claim.DialFunc) *prober {
	p := &prober{dial: dial}
	p.transport = &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			n, err := strconv.Atoi(port)
			if err != nil {
				return nil, err
			}
			return dial(ctx, host, n)
		},
	}
	p.client = &http.Client{
		Transport: p.transport,
		// A redirect is an answer: it counts as healthy, and is not followed out of the Pod.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

func (p *prober) close() { p.transport.CloseIdleConnections() }

type probeKind int

const (
	startup probeKind = iota
	readiness
	liveness
)

func (k probeKind) String() string { return [...]string{"startup", "readiness", "liveness"}[k] }

// probeResult is what a probe of one container instance has found.
type probeResult struct {
	id   string
	kind probeKind
	ok   bool
}

// probing are the running probes of one container instance.
type probing struct {
	cancel context.CancelFunc
	spec   *corev1.Container
}

// startProbes begins to probe a container that has just started or was taken over.
func (w *worker) startProbes(spec *corev1.Container, c *container) {
	ctx, cancel := context.WithCancel(w.agent.life)
	c.probing = &probing{cancel: cancel, spec: spec}
	c.started = spec.StartupProbe == nil
	c.ready = c.ready || (c.started && spec.ReadinessProbe == nil)
	if spec.StartupProbe != nil {
		w.startProbe(ctx, c.ID, spec, startup)
		return
	}
	w.startSteadyProbes(ctx, c.ID, spec)
}

// resumeProbes goes on probing a container that was taken over. Until the first answer it is what the Pod's status says.
func (w *worker) resumeProbes(spec *corev1.Container, c *container) {
	for _, s := range w.pod.Status.ContainerStatuses {
		if s.Name == spec.Name && s.ContainerID == containerIDPrefix+c.ID {
			c.ready = s.Ready
		}
	}
	w.startProbes(spec, c)
}

func (w *worker) startSteadyProbes(ctx context.Context, id string, spec *corev1.Container) {
	if spec.ReadinessProbe != nil {
		w.startProbe(ctx, id, spec, readiness)
	}
	if spec.LivenessProbe != nil {
		w.startProbe(ctx, id, spec, liveness)
	}
}

func (w *worker) stopProbe(c *container) {
	if c.probing != nil {
		c.probing.cancel()
		c.probing = nil
	}
}

func (w *worker) stopProbes() {
	for _, c := range w.containers {
		w.stopProbe(c)
	}
}

// take applies the results of probes.
func (w *worker) take(results []probeResult) {
	for _, r := range results {
		for _, c := range w.containers {
			if c.ID != r.id || c.state != running || c.probing == nil {
				continue
			}
			switch {
			case r.kind == readiness:
				c.ready = r.ok
			case r.kind == startup && r.ok:
				c.started = true
				c.ready = c.ready || c.probing.spec.ReadinessProbe == nil
				ctx, cancel := context.WithCancel(w.agent.life)
				spec := c.probing.spec
				c.probing.cancel()
				c.probing = &probing{cancel: cancel, spec: spec}
				w.startSteadyProbes(ctx, c.ID, spec)
			case !r.ok:
				w.log().Info("a container fails its probe and is restarted", "container", c.probing.spec.Name)
				name := c.probing.spec.Name
				w.agent.events.Eventf(w.about(name), corev1.EventTypeNormal, "Killing", "Container %s failed %s probe, will be restarted", name, r.kind)
				if err := w.kill(w.agent.life, c); err != nil {
					w.log().Error("a container that fails its probe is not ended", "error", err)
				}
			}
		}
	}
}

func (w *worker) startProbe(ctx context.Context, id string, spec *corev1.Container, kind probeKind) {
	p := map[probeKind]*corev1.Probe{startup: spec.StartupProbe, readiness: spec.ReadinessProbe, liveness: spec.LivenessProbe}[kind]
	run := w.probeFunc(id, spec, p)
	about, title := w.about(spec.Name), strings.ToUpper(kind.String()[:1])+kind.String()[1:]
	// Every failure is an event, as a kubelet has it: the recorder counts those that are alike, and bounds the others.
	failed := func(err error) {
		w.agent.events.Eventf(about, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %v", title, err)
	}
	w.agent.wg.Go(func() {
		probeLoop(ctx, p, kind, run, failed, func(ok bool) {
			w.mu.Lock()
			w.results = append(w.results, probeResult{id, kind, ok})
			w.mu.Unlock()
			w.poke()
		})
	})
}

// A new container is asked again after a few milliseconds, not after its period: a pool must fill within a second.
const (
	firstProbeWait = 2 * time.Millisecond
	maxProbeWait   = 100 * time.Millisecond
	eagerProbing   = 15 * time.Second
)

// probeLoop probes until ctx ends and reports every change, and for the startup probe its first success only. failed is
// told of every failure of a program that had the time to start.
func probeLoop(ctx context.Context, p *corev1.Probe, kind probeKind, run func(context.Context) error, failed func(error), report func(bool)) {
	period := time.Duration(max(p.PeriodSeconds, 0)) * time.Second
	if period == 0 {
		period = 10 * time.Second
	}
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	failureThreshold, successThreshold := max(p.FailureThreshold, 1), max(p.SuccessThreshold, 1)
	if p.FailureThreshold == 0 {
		failureThreshold = 3
	}
	// A program that has only just been executed never answers yet.
	wait := max(time.Duration(p.InitialDelaySeconds)*time.Second, firstProbeWait)
	begin := time.Now().Add(wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	eager := firstProbeWait
	known, healthy := false, false
	var good, bad int32
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err := run(attempt)
		cancel()
		if ctx.Err() != nil {
			return
		}
		next := period
		if err == nil {
			good, bad = good+1, 0
			if good >= successThreshold && (!known || !healthy) {
				known, healthy = true, true
				report(true)
				if kind == startup {
					return
				}
			} else if good < successThreshold {
				next = min(period, maxProbeWait)
			}
		} else {
			good = 0
			if !known && kind != liveness && time.Since(begin) < eagerProbing {
				// Not ready yet is not a failure: the program is starting.
				next = min(eager, period)
				eager = min(eager*3/2, maxProbeWait)
			} else {
				failed(err)
				if bad++; bad >= failureThreshold && (!known || healthy) {
					known, healthy = true, false
					report(false)
				}
			}
		}
		timer.Reset(next)
	}
}

// probeFunc makes one attempt of a probe.
func (w *worker) probeFunc(id string, spec *corev1.Container, p *corev1.Probe) func(context.Context) error {
	ip := w.state.IP
	switch {
	case p.HTTPGet != nil:
		return w.agent.probes.http(ip, spec, p.HTTPGet)
	case p.TCPSocket != nil:
		return func(ctx context.Context) error {
			port, err := portNumber(spec, p.TCPSocket.Port)
			if err != nil {
				return err
			}
			conn, err := w.agent.probes.dial(ctx, ip, port)
			if err != nil {
				return err
			}
			return conn.Close()
		}
	case p.Exec != nil:
		command, configErr := w.execConfig(spec)
		command.ID, command.Args = id, p.Exec.Command
		sandbox := w.currentSandbox()
		return func(ctx context.Context) error {
			if configErr != nil {
				return configErr
			}
			if sandbox == nil {
				return runtime.ErrGone
			}
			deadline, _ := ctx.Deadline()
			command.Timeout = time.Until(deadline)
			code, output, err := sandbox.Exec(ctx, command)
			if err != nil {
				return err
			}
			if code != 0 {
				return fmt.Errorf("the command ended with exit code %d: %s", code, output)
			}
			return nil
		}
	}
	return func(context.Context) error {
		return fmt.Errorf("this kind of probe is not supported on this node; use httpGet, tcpSocket or exec")
	}
}

// execConfig says how a command runs in a container: as the container itself.
func (w *worker) execConfig(spec *corev1.Container) (runtime.ExecConfig, error) {
	img, err := w.agent.images.Local(spec.Image, corev1.PullIfNotPresent)
	if err != nil {
		return runtime.ExecConfig{}, err
	}
	if img == nil {
		return runtime.ExecConfig{}, fmt.Errorf("the image %q has gone from this node", spec.Image)
	}
	c, err := w.config(w.agent.life, spec, img)
	return runtime.ExecConfig{Name: c.Name, Env: c.Env, Cwd: c.Cwd, User: c.User, Capabilities: c.Capabilities}, err
}

func (p *prober) http(ip string, spec *corev1.Container, get *corev1.HTTPGetAction) func(context.Context) error {
	return func(ctx context.Context) error {
		port, err := portNumber(spec, get.Port)
		if err != nil {
			return err
		}
		if get.Scheme == corev1.URISchemeHTTPS {
			return fmt.Errorf("https probes are not supported on this node; use tcpSocket")
		}
		path := get.Path
		if path == "" || path[0] != '/' {
			path = "/" + path
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(ip, strconv.Itoa(port))+path, nil)
		if err != nil {
			return err
		}
		r.Header.Set("User-Agent", "agentbox-node")
		for _, h := range get.HTTPHeaders {
			r.Header.Add(h.Name, h.Value)
		}
		resp, err := p.client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10))
		if resp.StatusCode < 200 || resp.StatusCode >= 400 {
			return fmt.Errorf("HTTP status %d", resp.StatusCode)
		}
		return nil
	}
}

// portNumber resolves a number or the name of one of the container's ports.
func portNumber(spec *corev1.Container, port intstr.IntOrString) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	for _, p := range spec.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	if n, err := strconv.Atoi(port.StrVal); err == nil {
		return n, nil
	}
	return 0, fmt.Errorf("the container has no port %q", port.StrVal)
}
