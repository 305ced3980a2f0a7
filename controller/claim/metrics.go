package claim

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the claim path's. Their labels take values from closed sets only.
type metrics struct {
	claims    *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	endings   *prometheus.CounterVec
	recycled  *prometheus.CounterVec
	conflicts prometheus.Counter
	waiting   prometheus.GaugeFunc
	live      prometheus.GaugeFunc
}

func newMetrics(m *Manager) *metrics {
	return &metrics{
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_claims_total", Help: "Finished creates, by outcome (ok or the error code).",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agentbox_claim_duration_seconds", Help: "Time from the create to the armed sandbox or the error.",
			Buckets: []float64{.002, .005, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"outcome"}),
		endings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_sandboxes_ended_total", Help: "Ended sandboxes, by final status.",
		}, []string{"status"}),
		recycled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_pods_recycled_total", Help: "Pods given back, by way (unused, reset or delete).",
		}, []string{"way"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agentbox_claim_conflicts_total", Help: "Claims that lost a Pod to another writer and took the next one.",
		}),
		waiting: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "agentbox_claims_waiting", Help: "Claims that wait for a Pod.",
		}, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			n := 0
			for _, w := range m.waiting {
				n += w
			}
			return float64(n)
		}),
		live: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "agentbox_sandboxes", Help: "Live sandboxes, the starting and stopping ones included.",
		}, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return float64(len(m.sandboxes))
		}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.claims, m.seconds, m.endings, m.recycled, m.conflicts, m.waiting, m.live}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *metrics) created(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = string(CodeInternal)
		var e *Error
		if errors.As(err, &e) {
			outcome = string(e.Code)
		}
	}
	m.claims.WithLabelValues(outcome).Inc()
	m.seconds.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *metrics) ended(e ending) { m.endings.WithLabelValues(string(e.status)).Inc() }
