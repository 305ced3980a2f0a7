package native

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests by operation. The operations are the document's, so the labels are bounded.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	streams  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentbox_native_requests_total", Help: "Requests to the native API that were answered.",
		}, []string{"operation", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agentbox_native_request_seconds", Help: "Time to answer a request to the native API, streams left out.",
			Buckets: prometheus.ExponentialBuckets(0.002, 4, 8),
		}, []string{"operation"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "agentbox_native_streams", Help: "Watches and followed logs that are open.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.streams} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// answered counts one request. operation is empty where none matched.
func (m *metrics) answered(operation string, status int, took time.Duration, streamed bool) {
	if operation == "" {
		operation = "none"
	}
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	if !streamed {
		m.duration.WithLabelValues(operation).Observe(took.Seconds())
	}
}
