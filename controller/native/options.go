// Package native serves the platform's own API: every operation of openapi/native.yaml, under /v1 for clients that
// know the cluster and under /api/clusters/{cluster}/v1 for those that come through a console address.
package native

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/controller/claim"
)

// Options is what the API is made of. Everything but Logs, Catalogue, Logger and the names is required.
type Options struct {
	// Client talks to the API server directly: what a caller wrote is what it reads next. Its scheme has the core
	// types and v1alpha1.
	Client client.WithWatch
	Claims claim.Service
	Access *access.Store
	// ClusterID is this cluster's id in environments and addresses; ClusterName is shown beside it.
	ClusterID   string
	ClusterName string
	// SystemNamespace holds the platform's own objects.
	SystemNamespace string
	// Version is the build's version, for GET /version and the X-AgentBox-Server-Version header.
	Version string
	// PublicURL returns the address under which a client reached the platform, without a trailing slash.
	PublicURL func(*http.Request) string
	// Domain is the wildcard domain of the data plane; empty when there is none.
	Domain string
	// Logs reads container logs; nil answers 501.
	Logs      LogReader
	Catalogue *catalogue.Catalogue
	Logger    *slog.Logger
	// Registerer receives the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// LogQuery asks for the log of one container.
type LogQuery struct {
	Namespace string
	Pod       string
	Container string
	// Since leaves out what was written before: a Pod serves one sandbox after another.
	Since time.Time
	// Lines is how many lines from the end; 0 means all.
	Lines  int64
	Follow bool
}

// LogReader opens a container's log: one line an entry, each led by an RFC 3339 time with nanoseconds and a blank, as
// `kubectl logs --timestamps` prints it. With Follow it stays open until ctx ends or the container does.
type LogReader func(ctx context.Context, q LogQuery) (io.ReadCloser, error)
