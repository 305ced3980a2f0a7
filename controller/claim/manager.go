package claim

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/record"
)

// Options is what a Manager needs. Client, Cache, Dial, ClusterID and SystemNamespace are required.
type Options struct {
	// Client writes to and reads from the API server directly, never from a cache.
	Client client.Client
	// Cache feeds the queues: Pods, SandboxPools, SandboxEnvs and Nodes. The caller starts it.
	Cache cache.Cache
	// Dial opens connections into Pods.
	Dial DialFunc
	// ClusterID selects the segment of an env's spec.clusters that is served here.
	ClusterID string
	// SystemNamespace holds the master key and the records of finished sandboxes.
	SystemNamespace string
	Logger          *slog.Logger
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Registerer receives the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Records bounds the memory of finished sandboxes; the zero value takes the defaults.
	Records record.Limits

	// MaxWaiting bounds the claims that wait for a Pod, per env; default 8192.
	MaxWaiting int
	// ResetTimeout bounds the reset of a used Pod; past it the Pod is deleted. Default 30 s.
	ResetTimeout time.Duration
}

// Manager implements Service. One Manager at a time serves a cluster: run it under leader election.
type Manager struct {
	opts Options
}

var _ Service = (*Manager)(nil)

// New checks the options. The Manager serves nothing until Start has recovered what the Pods say.
func New(o Options) (*Manager, error) {
	return &Manager{opts: o}, nil
}

// Start loads the records, rebuilds the queues from the Pods and serves until ctx ends. It returns once every
// goroutine it started has ended. It is a controller-runtime Runnable.
func (m *Manager) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// NeedLeaderElection makes controller-runtime start the Manager on the leader only.
func (m *Manager) NeedLeaderElection() bool { return true }

// Ready is closed once the Manager has recovered and serves claims.
func (m *Manager) Ready() <-chan struct{} { return nil }

// Waiting is how many claims wait for a Pod of this pool.
func (m *Manager) Waiting(namespace, pool string) int { return 0 }

var errNotBuilt = errors.New("claim: not implemented yet")

func (m *Manager) Create(ctx context.Context, r Request) (Sandbox, error) {
	return Sandbox{}, errNotBuilt
}
func (m *Manager) Get(ctx context.Context, id string, finished bool) (Sandbox, error) {
	return Sandbox{}, errNotBuilt
}
func (m *Manager) List(ctx context.Context, f Filter) ([]Sandbox, error) { return nil, errNotBuilt }
func (m *Manager) Kill(ctx context.Context, id string, why Reason) error { return errNotBuilt }
func (m *Manager) SetTimeout(ctx context.Context, id string, d time.Duration) (Sandbox, error) {
	return Sandbox{}, errNotBuilt
}
func (m *Manager) Extend(ctx context.Context, id string, d time.Duration) (Sandbox, error) {
	return Sandbox{}, errNotBuilt
}
func (m *Manager) Touch(id string)               {}
func (m *Manager) Route(id string) (Route, bool) { return Route{}, false }
