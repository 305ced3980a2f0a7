package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
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
	// SettleAfter is how long a sandbox lives, or a Pod is free, before its Pod says so. Default 500 ms.
	SettleAfter time.Duration
	// ResetTimeout bounds the reset of a used Pod; past it the Pod is deleted. Default 30 s.
	ResetTimeout time.Duration
}

func (o *Options) complete() error {
	var missing []error
	for name, ok := range map[string]bool{
		"Client": o.Client != nil, "Cache": o.Cache != nil, "Dial": o.Dial != nil,
		"ClusterID": o.ClusterID != "", "SystemNamespace": o.SystemNamespace != "",
	} {
		if !ok {
			missing = append(missing, fmt.Errorf("claim.Options.%s is required", name))
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 8192
	}
	if o.SettleAfter <= 0 {
		o.SettleAfter = 500 * time.Millisecond
	}
	if o.ResetTimeout <= 0 {
		o.ResetTimeout = 30 * time.Second
	}
	return errors.Join(missing...)
}

// Manager implements Service. One Manager at a time serves a cluster: run it under leader election.
type Manager struct {
	opts    Options
	client  client.Client
	clock   clock.WithTicker
	log     *slog.Logger
	records *record.Store
	metrics *metrics
	timers  *timers
	envd    *http.Client
	sealer  *sealer
	ready   chan struct{}

	// life ends when the Manager stops; work counts the goroutines that belong to it.
	life context.Context
	work sync.WaitGroup

	mu sync.Mutex
	tracker
	sandboxes map[string]*sandbox
	// waiting counts the claims in line by the pool that is first in their order.
	waiting  map[types.NamespacedName]int
	announce announcements
	tickets  uint64
	stopped  bool
	// asking are the claims adopted by a start that envd decides about.
	asking []<-chan struct{}

	// routes holds a *route for every armed sandbox; the gateway reads it without the lock.
	routes sync.Map
}

var _ Service = (*Manager)(nil)

// New checks the options. The Manager serves nothing until Start has recovered what the Pods say.
func New(o Options) (*Manager, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	m := &Manager{
		opts:      o,
		client:    o.Client,
		clock:     o.Clock,
		log:       o.Logger,
		records:   record.New(o.Client, o.SystemNamespace, o.Records, o.Clock, o.Logger),
		timers:    newTimers(o.Clock),
		envd:      newEnvdClient(o.Dial),
		ready:     make(chan struct{}),
		tracker:   newTracker(),
		sandboxes: map[string]*sandbox{},
		waiting:   map[types.NamespacedName]int{},
		announce:  newAnnouncements(),
	}
	m.metrics = newMetrics(m)
	if o.Registerer != nil {
		if err := o.Registerer.Register(m.metrics); err != nil {
			return nil, fmt.Errorf("register the metrics of the claim path: %w", err)
		}
	}
	return m, nil
}

// Start loads the records, rebuilds the queues from the Pods and serves until ctx ends. It returns once every
// goroutine it started has ended. It is a controller-runtime Runnable, and runs once.
func (m *Manager) Start(ctx context.Context) (err error) {
	life, end := context.WithCancel(ctx)
	defer end()
	m.life = life
	if m.sealer, err = loadSealer(ctx, m.client, m.opts.SystemNamespace); err != nil {
		return err
	}
	if err := m.records.Load(ctx); err != nil {
		return err
	}
	// The records outlive the releases that write them.
	recording, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	var recorder sync.WaitGroup
	recorder.Go(func() { m.records.Run(recording) })
	defer func() { stopRecording(); recorder.Wait() }()
	defer m.stop(end)

	stopWatching, err := m.watch(ctx)
	defer stopWatching()
	if err != nil {
		return err
	}
	m.mu.Lock()
	asking := m.asking
	m.asking = nil
	m.mu.Unlock()
	for _, decided := range asking {
		<-decided // none takes longer than askLimit
	}
	m.work.Go(func() { m.timers.run(life, m.due) })
	m.work.Go(func() { m.announceWaiting(life) })
	close(m.ready)
	m.log.Info("claims are served", "cluster", m.opts.ClusterID)
	<-ctx.Done()
	return nil
}

// stop refuses new work and waits for what runs. Releases that are not finished are continued by the next process,
// from what stands on the Pods.
func (m *Manager) stop(end context.CancelFunc) {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	end()
	m.work.Wait()
	m.routes.Clear()
	m.envd.CloseIdleConnections()
}

// spawn runs f as part of the Manager's life. It reports false, and runs nothing, once the Manager stops.
func (m *Manager) spawn(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spawnLocked(f)
}

func (m *Manager) spawnLocked(f func()) bool {
	if m.stopped {
		return false
	}
	m.work.Go(f)
	return true
}

// NeedLeaderElection makes controller-runtime start the Manager on the leader only.
func (m *Manager) NeedLeaderElection() bool { return true }

// Ready is closed once the Manager has recovered and serves claims.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// Waiting is how many claims wait for a Pod of this pool. A claim that several pools could serve counts for the one
// that routing prefers.
func (m *Manager) Waiting(namespace, pool string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting[types.NamespacedName{Namespace: namespace, Name: pool}]
}
