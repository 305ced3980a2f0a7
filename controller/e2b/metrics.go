package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

// envdPort is where envd answers in every sandbox.
const envdPort = 49983

// Bounds of reading metrics from sandboxes.
const (
	metricsTimeout  = 5 * time.Second
	metricsMaxBytes = 64 << 10
	// metricsSlack is how far a range may miss now and still mean it: clients take the time before they send, from a
	// clock of their own.
	metricsSlack    = 30
	metricsMaxIDs   = 100
	metricsParallel = 8
)

// metricBody is E2B's SandboxMetric. Memory and disk are bytes.
type metricBody struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int64     `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

type metricsBody struct {
	Sandboxes map[string]metricBody `json:"sandboxes"`
}

// metrics answers one point, taken now, when the range reaches now. There is no history: envd is asked, not a store.
func (h *Handler) metrics(ctx context.Context, c *call) (reply, error) {
	q, err := c.queryParams("start", "end")
	if err != nil {
		return reply{}, err
	}
	now := time.Now().Unix()
	start, err := intParam(q, "start", 0, 0, 1<<53)
	if err != nil {
		return reply{}, err
	}
	end, err := intParam(q, "end", now, 0, 1<<53)
	if err != nil {
		return reply{}, err
	}
	if q.Has("start") && q.Has("end") && start >= end {
		return reply{}, badRequest("validation error: start=%d is not before end=%d (both are Unix seconds)", start, end)
	}
	sb, err := h.sandbox(ctx, c, access.VerbGet)
	if err != nil {
		return reply{}, err
	}
	points := []metricBody{}
	if start <= now+metricsSlack && now-metricsSlack <= end {
		point, ok, err := h.sample(ctx, sb.ID)
		if err != nil {
			return reply{}, err
		}
		if ok {
			points = append(points, point)
		}
	}
	return reply{Status: http.StatusOK, Body: points}, nil
}

// metricsOfMany answers the latest point of each sandbox of the caller; unknown ids are left out.
func (h *Handler) metricsOfMany(ctx context.Context, c *call) (reply, error) {
	q, err := c.queryParams("sandbox_ids")
	if err != nil {
		return reply{}, err
	}
	ids := strings.Split(strings.Join(q["sandbox_ids"], ","), ",")
	if len(ids) > metricsMaxIDs || ids[0] == "" {
		return reply{}, badRequest("validation error: sandbox_ids: want 1 to %d ids joined by commas", metricsMaxIDs)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	out := metricsBody{Sandboxes: map[string]metricBody{}}
	slots := make(chan struct{}, metricsParallel)
	for _, text := range ids {
		id, err := sandboxID(text)
		if err != nil {
			return reply{}, err
		}
		sb, err := h.claims.Get(ctx, id, false)
		if err != nil || c.authorize(access.VerbGet, object(sb)) != nil {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			point, ok, err := h.sample(ctx, id)
			if err != nil {
				h.log.Debug("no metrics from sandbox", "sandbox", id, "error", err)
				return
			}
			if ok {
				mu.Lock()
				out.Sandboxes[text] = point
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return reply{Status: http.StatusOK, Body: out}, nil
}

// sample asks the envd of a sandbox. It does not count as activity. False means that the sandbox is not reachable now.
func (h *Handler) sample(ctx context.Context, id string) (metricBody, bool, error) {
	route, ok := h.claims.Route(id)
	if !ok {
		return metricBody{}, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	from, err := envdMetrics(ctx, route)
	if err != nil {
		return metricBody{}, false, &apiError{Status: http.StatusBadGateway, Message: "the sandbox did not answer with its metrics; try again", Err: err}
	}
	at := time.Unix(from.Time, 0).UTC()
	return metricBody{
		Timestamp: at, TimestampUnix: from.Time,
		CPUCount: from.CPUCount, CPUUsedPct: from.CPUUsedPct,
		MemUsed: from.MemUsed, MemTotal: from.MemTotal, MemCache: from.MemCache,
		DiskUsed: from.DiskUsed, DiskTotal: from.DiskTotal,
	}, true, nil
}

// envdSample is what envd answers on /metrics.
type envdSample struct {
	Time       int64   `json:"ts"`
	CPUCount   int64   `json:"cpu_count"`
	CPUUsedPct float64 `json:"cpu_used_pct"`
	MemUsed    int64   `json:"mem_used"`
	MemTotal   int64   `json:"mem_total"`
	MemCache   int64   `json:"mem_cache"`
	DiskUsed   int64   `json:"disk_used"`
	DiskTotal  int64   `json:"disk_total"`
}

func envdMetrics(ctx context.Context, route claim.Route) (envdSample, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return route.Dial(ctx, envdPort)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envd/metrics", nil)
	if err != nil {
		return envdSample{}, err
	}
	if route.AccessToken != "" {
		request.Header.Set("X-Access-Token", route.AccessToken)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return envdSample{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return envdSample{}, fmt.Errorf("envd answered /metrics with %s", response.Status)
	}
	var sample envdSample
	if err := json.NewDecoder(io.LimitReader(response.Body, metricsMaxBytes)).Decode(&sample); err != nil {
		return envdSample{}, fmt.Errorf("envd's metrics: %w", err)
	}
	return sample, nil
}
