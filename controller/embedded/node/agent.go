// Package node is the node agent of the embedded platform: it runs the Pods that are bound to its node as local
// sandboxes, and reports about them as a kubelet does.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/network"
	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

// Options are what an agent needs.
type Options struct {
	// Config is an administrator's client configuration.
	Config *rest.Config
	// NodeName is the node whose Pods the agent runs.
	NodeName string
	// DataDir is the agent's own directory.
	DataDir string
	// BinDir holds envd and sandbox-init.
	BinDir string
	// Runtime runs the Pods that name none: "auto" for the built-in one, or a runtime's name.
	Runtime string
	Logger  *slog.Logger
}

// Agent is a running node agent.
type Agent struct {
	log     *slog.Logger
	client  kubernetes.Interface
	node    string
	dir     string
	runtime *namespaces.Runtime // the built-in one, which knows what holds for all
	// runtimes are all that there are; standard is the one of Pods that name none.
	runtimes *runtimes
	standard *namespaces.Runtime
	images   *image.Store
	network  *network.Network
	probes   *prober
	events   *events

	life   context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	workers map[types.UID]*worker
	byIP    map[string]*worker
}

// Start finds the Pods that an earlier agent left running, registers the node, and runs Pods until Stop.
// ctx bounds the start only.
func Start(ctx context.Context, o Options) (_ *Agent, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Runtime == "" || o.Runtime == "auto" {
		o.Runtime = namespaces.Name
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, err
	}
	// Sandboxes' users pass through to the images; what is secret is closed further down.
	for _, d := range []string{dir, filepath.Join(dir, "pods"), filepath.Join(dir, "claims")} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return nil, err
		}
	}
	a := &Agent{
		log: o.Logger, node: o.NodeName, dir: dir, workers: map[types.UID]*worker{}, byIP: map[string]*worker{},
	}
	if err := removeTrials(dir); err != nil {
		return nil, err
	}
	a.life, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			a.cancel()
			a.wg.Wait()
			a.close()
		}
	}()
	if a.client, err = kubernetes.NewForConfig(protobufConfig(o.Config)); err != nil {
		return nil, err
	}
	a.events = newEvents(a.client, a.node)
	if a.runtime, err = namespaces.New(namespaces.Options{
		Launcher: filepath.Join(o.BinDir, "sandbox-init"), Name: groupName(dir), Dir: dir, Logger: o.Logger,
	}); err != nil {
		return nil, err
	}
	a.runtimes = &runtimes{builtIn: a.runtime, dir: dir, tried: map[string]trial{}}
	if a.standard, err = a.runtimes.get(ctx, o.Runtime); err != nil {
		return nil, err
	}
	if a.images, err = image.NewStore(filepath.Join(dir, "images"), a.runtime.IDs(), filepath.Join(o.BinDir, "envd")); err != nil {
		return nil, err
	}
	if a.network, err = network.New(network.Options{Name: shortName(dir), StateFile: filepath.Join(dir, "network.json"), Logger: o.Logger}); err != nil {
		return nil, err
	}
	a.probes = newProber(a.Dial)
	if err := a.adopt(ctx); err != nil {
		return nil, err
	}
	if err := a.register(ctx); err != nil {
		return nil, fmt.Errorf("register the node: %w", err)
	}
	if err := a.watchClaims(ctx); err != nil {
		return nil, err
	}
	if err := a.watch(ctx); err != nil {
		return nil, err
	}
	a.wg.Go(a.guardDisk)
	a.wg.Go(a.guardLimits)
	a.wg.Go(a.collectImages)
	return a, nil
}

// protobufConfig makes a client speak protobuf, which costs a fraction of JSON.
func protobufConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.ContentType = apiruntime.ContentTypeProtobuf
	return c
}

// Describe says in one line which runtime isolates the sandboxes, and what it isolates.
func (a *Agent) Describe() string { return a.standard.Describe() + "; " + a.network.Describe() }

// watch follows the Pods of the node and starts a worker for each.
func (a *Agent) watch(ctx context.Context) error {
	lw := cache.NewListWatchFromClient(a.client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", a.node))
	informer := cache.NewSharedInformer(lw, &corev1.Pod{}, 0)
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.update(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { a.update(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				a.gone(pod.UID)
			}
		},
	})
	if err != nil {
		return err
	}
	a.wg.Go(func() { informer.RunWithContext(a.life) })
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("list the Pods of the node: %w", context.Cause(ctx))
	}
	a.dropUnknown()
	// From here on no Pod claims to be Ready that is not: whoever reads the API next may rely on it.
	a.mu.Lock()
	workers := slices.Collect(maps.Values(a.workers))
	a.mu.Unlock()
	for _, w := range workers {
		select {
		case <-w.first:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (a *Agent) update(pod *corev1.Pod) {
	a.mu.Lock()
	w := a.workers[pod.UID]
	if w == nil {
		if a.life.Err() != nil {
			a.mu.Unlock()
			return
		}
		w = a.newWorker(pod.UID)
		a.startWorker(w)
	}
	a.mu.Unlock()
	w.setPod(pod)
}

func (a *Agent) gone(uid types.UID) {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w != nil {
		w.setGone()
	}
}

// startWorker runs w until its Pod has gone. The caller holds mu.
func (a *Agent) startWorker(w *worker) {
	a.workers[w.uid] = w
	a.wg.Go(func() {
		w.run(a.life)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.life.Err() == nil {
			delete(a.workers, w.uid)
		}
	})
}

// dropUnknown ends the Pods that were found running and that the API does not know any more.
func (a *Agent) dropUnknown() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		if !w.known() {
			w.setGone()
		}
	}
}

// Dial connects to a TCP port of the Pod with an address, whether the service listens on localhost or on the address.
func (a *Agent) Dial(ctx context.Context, podIP string, port int) (net.Conn, error) {
	a.mu.Lock()
	w := a.byIP[podIP]
	a.mu.Unlock()
	if w == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(net.JoinHostPort(podIP, strconv.Itoa(port))), Err: errNoPod}
	}
	p := w.currentSandbox()
	if p == nil {
		return nil, runtime.ErrGone
	}
	return p.Dial(ctx, port)
}

var errNoPod = errors.New("no Pod of this node has the address")

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func (a *Agent) setAddress(ip string, w *worker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w == nil {
		delete(a.byIP, ip)
	} else {
		a.byIP[ip] = w
	}
}

// stopLimit bounds how long Stop waits for the API to take in how the sandboxes ended.
const stopLimit = 10 * time.Second

// Stop ends every sandbox, says so in the API, and removes what the agent made on the machine. Pods stay in the API: the next agent
// starts them again.
func (a *Agent) Stop(ctx context.Context) error {
	a.cancel()
	a.wg.Wait()
	a.mu.Lock()
	workers := a.workers
	a.workers = map[types.UID]*worker{}
	a.mu.Unlock()
	told, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	errs := make([]error, 0, len(workers))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			err := w.stopSandbox(context.WithoutCancel(ctx))
			if err == nil {
				err = w.tellStopped(told)
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	if err := a.network.Close(); err != nil {
		errs = append(errs, err)
	}
	a.network = nil
	a.close()
	return errors.Join(errs...)
}

// Abandon lets go of everything without ending a sandbox, as a crash would. The next agent adopts the sandboxes.
func (a *Agent) Abandon() {
	a.cancel()
	a.wg.Wait()
	for _, w := range a.workers {
		if p := w.currentSandbox(); p != nil {
			p.Release()
		}
	}
	a.events.close()
}

func (a *Agent) close() {
	if a.events != nil {
		a.events.close()
	}
	if a.probes != nil {
		a.probes.close()
	}
	if a.runtime != nil {
		a.runtime.Close()
	}
}
