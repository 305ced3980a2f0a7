package native

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/claim"
)

type readiness struct {
	Ready  bool    `json:"ready"`
	Probes []probe `json:"probes"`
}

type probe struct {
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	Message string `json:"message,omitempty"`
}

// probeTimeout bounds one probe; all run at once.
const probeTimeout = 2 * time.Second

const envdPort = 49983

// isSandboxReady asks every daemon that the sandbox's pool declares, envd at least.
func isSandboxReady(c *call) (*response, error) {
	s, err := c.findSandbox(access.VerbUse, "", false)
	if err != nil {
		return nil, err
	}
	route, routed := c.Claims.Route(s.ID)
	if !routed {
		return unready(probe{Name: "envd", Message: fmt.Sprintf("the sandbox is %s and takes no traffic", s.Status)}), nil
	}
	runtimes, err := c.runtimes(s)
	if err != nil {
		return nil, err
	}
	if len(runtimes) == 0 {
		runtimes = []v1alpha1.Runtime{{Name: "envd", Port: envdPort}}
	}
	r := readiness{Ready: true, Probes: make([]probe, len(runtimes))}
	var all sync.WaitGroup
	for i := range runtimes {
		all.Go(func() { r.Probes[i] = probeRuntime(c.ctx, route, &runtimes[i]) })
	}
	all.Wait()
	for _, p := range r.Probes {
		r.Ready = r.Ready && p.Ready
	}
	if !r.Ready {
		return unready(r.Probes...), nil
	}
	return ok(r), nil
}

func unready(probes ...probe) *response {
	return &response{status: http.StatusServiceUnavailable, body: readiness{Probes: probes}}
}

// probeRuntime asks one daemon: with its HTTP probe where it has one, with /health where it is envd, else by
// connecting. One without a port counts as ready.
func probeRuntime(ctx context.Context, route claim.Route, r *v1alpha1.Runtime) probe {
	p := probe{Name: r.Name}
	if r.Port == 0 || r.Protocol == corev1.ProtocolUDP {
		p.Ready = true
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	path := ""
	if r.Port == envdPort {
		path = "/health"
	}
	if r.ReadinessProbe != nil && r.ReadinessProbe.HTTPGet != nil {
		path = r.ReadinessProbe.HTTPGet.Path
	}
	if path == "" {
		conn, err := route.Dial(ctx, int(r.Port))
		if err != nil {
			p.Message = "port " + fmt.Sprint(r.Port) + " does not take connections"
			return p
		}
		_ = conn.Close() // it was opened to see that it opens
		p.Ready = true
		return p
	}
	p.Message = probeHTTP(ctx, route, int(r.Port), path)
	p.Ready = p.Message == ""
	return p
}

// probeHTTP returns what is wrong, or an empty string.
func probeHTTP(ctx context.Context, route claim.Route, port int, path string) string {
	hc := sandboxClient(route, port)
	defer hc.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox"+path, nil)
	if err != nil {
		return "its readiness path is no path"
	}
	resp, err := hc.Do(req)
	if err != nil {
		return fmt.Sprintf("port %d does not answer", port)
	}
	_ = resp.Body.Close() // only the status counts
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Sprintf("port %d answered %d", port, resp.StatusCode)
	}
	return ""
}

// sandboxClient speaks HTTP to one port of a sandbox, whatever the URL says, and follows no redirect.
func sandboxClient(route claim.Route, port int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return route.Dial(ctx, port)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
