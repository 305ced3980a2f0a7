// Package native serves the platform's own API: every operation of openapi/native.yaml, under /v1 for clients that
// know the cluster and under /api/clusters/{cluster}/v1 for those that come through a console address.
package native

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/podlog"
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
	Logs      podlog.Reader
	Catalogue *catalogue.Catalogue
	Logger    *slog.Logger
	// Stopping is closed when watches and followed logs must end; nil ends none.
	Stopping <-chan struct{}
	// Registerer receives the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}
