package node

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/agentbox/controller/embedded/runtime"
)

// worker runs one Pod. Its goroutine alone changes what is not guarded by mu.
type worker struct {
	agent *Agent
	uid   types.UID
	dir   string
	wake  chan struct{}
	// first is closed after the first pass, when the Pod's status no longer claims more than is true.
	first     chan struct{}
	firstOnce sync.Once

	mu      sync.Mutex
	latest  *corev1.Pod
	removed bool // the Pod has gone from the API
	sandbox runtime.Pod
	results []probeResult
	pulls   map[string]*pulled // by image reference
	// images are the IDs of the images that must stay.
	images map[string]bool
	// eviction is why the Pod has to go; empty when it may stay.
	eviction string
	// wipes counts the resets that have emptied the Pod: what was measured before the last one is no longer in it.
	wipes int
	// measureAt is when the Pod is measured next; guardLimits alone uses it.
	measureAt time.Time

	recordMu sync.Mutex // guards the file of state, not state

	pod         *corev1.Pod // of this pass
	state       *podState
	containers  map[string]*container
	volumes     volumes
	prepared    bool // volumes exist
	refs        map[string]map[string][]byte
	terminating bool
	killAt      time.Time
	over        bool   // everything has ended and the API knows
	evicted     string // why everything was ended, when it was by an eviction

	reset resetState

	lastStatus *corev1.PodStatus
	writeAt    time.Time
}

func (a *Agent) newWorker(uid types.UID) *worker {
	return &worker{
		agent: a, uid: uid, dir: filepath.Join(a.dir, "pods", string(uid)),
		wake: make(chan struct{}, 1), first: make(chan struct{}), pulls: map[string]*pulled{},
		containers: map[string]*container{}, refs: map[string]map[string][]byte{},
	}
}

func (w *worker) setPod(pod *corev1.Pod) {
	w.mu.Lock()
	w.latest = pod
	w.mu.Unlock()
	w.poke()
}

func (w *worker) setGone() {
	w.mu.Lock()
	w.removed = true
	w.mu.Unlock()
	w.poke()
}

func (w *worker) known() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest != nil
}

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) currentSandbox() runtime.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sandbox
}

func (w *worker) setSandbox(p runtime.Pod) {
	w.mu.Lock()
	w.sandbox = p
	w.mu.Unlock()
}

// run works until the Pod has gone or ctx ends. Sandboxes outlive ctx: Stop or the next agent deals with them.
func (w *worker) run(ctx context.Context) {
	defer w.firstOnce.Do(func() { close(w.first) })
	defer w.stopProbes()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var exits <-chan runtime.ContainerState
		var lost <-chan struct{}
		if p := w.currentSandbox(); p != nil {
			exits, lost = p.Exits(), p.Done()
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		case s := <-exits:
			w.ended(s)
		case <-lost:
			w.sandboxLost()
		}
		next, done := w.pass(ctx)
		if done || ctx.Err() != nil {
			return
		}
		w.firstOnce.Do(func() { close(w.first) })
		timer.Reset(next)
	}
}

const (
	// idlePass is how long a worker waits when nothing is due: everything that matters wakes it.
	idlePass = time.Hour
	// retryPass is when something that failed for a reason outside of the Pod is tried again.
	retryPass = 500 * time.Millisecond
	// runtimePass is when a Pod asks again for a runtime that the node cannot use: somebody may install it.
	runtimePass = 10 * time.Second
)

// reasonSandbox is why containers wait for a sandbox that does not start.
const reasonSandbox = "CreatePodSandboxError"

// pass brings the Pod one step further. It returns when the next pass is due, and whether the Pod has gone.
func (w *worker) pass(ctx context.Context) (next time.Duration, done bool) {
	w.mu.Lock()
	pod, removed, results, eviction := w.latest, w.removed, w.results, w.eviction
	w.results = nil
	w.mu.Unlock()
	if removed {
		if err := w.stopSandbox(context.WithoutCancel(ctx)); err != nil {
			w.log().Error("a Pod's sandbox is not removed", "error", err)
			return retryPass, false
		}
		return 0, true
	}
	if pod == nil || w.over {
		return idlePass, false
	}
	w.pod = pod
	w.take(results)
	next = w.sync(ctx, eviction)
	if ctx.Err() != nil {
		return next, false
	}
	return min(next, w.report(ctx)), false
}

// sync does what the Pod's specification asks for and returns when it has to be called again at the latest.
func (w *worker) sync(ctx context.Context, eviction string) time.Duration {
	if w.state == nil {
		w.restoreCounts()
	}
	if w.pod.DeletionTimestamp != nil {
		return w.terminate(ctx)
	}
	if w.evicted != "" || evicted(w.pod) || w.finished() {
		return idlePass
	}
	if eviction != "" {
		return w.evict(ctx, eviction)
	}
	if reason, message := unsupported(w.pod); reason != "" {
		w.waitAll(reason, message)
		return idlePass
	}
	if w.currentSandbox() == nil {
		// A status of an earlier life must not say Ready while there is nothing.
		w.retract(ctx)
		if err := w.startSandbox(ctx); err != nil {
			w.log().Error("a Pod's sandbox does not start", "error", err)
			w.waitAll(reasonSandbox, err.Error())
			if unusable := (*runtimeError)(nil); errors.As(err, &unusable) {
				return runtimePass
			}
			return retryPass
		}
	}
	w.beginReset(ctx)
	if due, ok := w.prepare(ctx); !ok {
		return due
	}
	due := w.runContainers(ctx)
	w.endReset()
	return due
}

// finished reports whether all containers have ended for good.
func (w *worker) finished() bool {
	if w.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return false
	}
	for i := range w.pod.Spec.InitContainers {
		if c := w.container(w.pod.Spec.InitContainers[i].Name); c.state == ended && c.Ended.ExitCode != 0 && w.pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return true
		}
	}
	for i := range w.pod.Spec.Containers {
		c := w.container(w.pod.Spec.Containers[i].Name)
		if c.state != ended || (c.Ended.ExitCode != 0 && w.pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure) {
			return false
		}
	}
	return true
}
