package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/apiserver"
	"navix.sh/agentbox/controller/pool"
)

// fakeNode is a kubelet that runs nothing: it reports what a test wants to see, and puts an envd of a few lines into
// every Pod. It exists to fail on demand.
type fakeNode struct {
	client client.Client
	cache  cache.Cache
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu   sync.Mutex
	pods map[types.UID]*fakePod
	byIP map[string]*fakePod
	next int
	// pull says why an image cannot be pulled.
	pull map[string]string
	// stuck images never finish pulling.
	stuck map[string]bool
	// noReset makes every reset fail.
	noReset bool
	// envdStatus, when not 0, is what every envd answers to /init.
	envdStatus int
	// initGate, when not nil, is received from before envd answers /init.
	initGate chan struct{}
}

// fakePod is what the node knows of one Pod.
type fakePod struct {
	ip        string
	image     string
	container int
	restarts  int32
	resetID   string
	exit      *corev1.ContainerStateTerminated
	envd      *fakeEnvd
}

// fakeEnvd is armed again by who armed it.
type fakeEnvd struct {
	armed bool
	used  bool
	body  envdInit
	token string
}

func newFakeNode(c client.Client, ch cache.Cache) *fakeNode {
	return &fakeNode{
		client: c, cache: ch,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		pods:  map[types.UID]*fakePod{}, byIP: map[string]*fakePod{},
		pull: map[string]string{}, stuck: map[string]bool{},
	}
}

func (n *fakeNode) register(ctx context.Context) error {
	return n.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: apiserver.NodeName, Annotations: map[string]string{v1alpha1.AnnotationPodReset: v1alpha1.PodResetV1},
	}})
}

// Start runs the node until ctx ends.
func (n *fakeNode) Start(ctx context.Context) error {
	informer, err := n.cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	enqueue := func(obj any) {
		if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			ns, name, _ := toolscache.SplitMetaNamespaceKey(key)
			n.queue.Add(types.NamespacedName{Namespace: ns, Name: name})
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }, DeleteFunc: enqueue,
	}); err != nil {
		return err
	}
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				key, shutdown := n.queue.Get()
				if shutdown {
					return
				}
				if err := n.sync(ctx, key); err != nil && ctx.Err() == nil {
					n.queue.AddRateLimited(key)
				} else {
					n.queue.Forget(key)
				}
				n.queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	n.queue.ShutDown()
	workers.Wait()
	return nil
}

func (n *fakeNode) sync(ctx context.Context, key types.NamespacedName) error {
	var pod corev1.Pod
	if err := n.cache.Get(ctx, key, &pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil {
		n.mu.Lock()
		if p := n.pods[pod.UID]; p != nil {
			delete(n.byIP, p.ip)
			delete(n.pods, pod.UID)
		}
		n.mu.Unlock()
		err := n.client.Delete(ctx, &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		if apierrors.IsConflict(err) {
			return nil
		}
		return client.IgnoreNotFound(err)
	}
	n.mu.Lock()
	status := n.status(&pod)
	n.mu.Unlock()
	if status == nil {
		return nil
	}
	pod.Status = *status
	err := n.client.Status().Update(ctx, &pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err // a conflict is tried again with the newer Pod
}

// status is the status the Pod should have; nil when it has it.
func (n *fakeNode) status(pod *corev1.Pod) *corev1.PodStatus {
	p := n.pods[pod.UID]
	if p == nil {
		n.next++
		p = &fakePod{ip: fmt.Sprintf("10.0.%d.%d", n.next/250, n.next%250+1), image: pod.Spec.Containers[0].Image, envd: &fakeEnvd{}}
		n.pods[pod.UID], n.byIP[p.ip] = p, p
	}
	image := pod.Spec.Containers[0].Image
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if p.image != image {
		switch {
		case n.pull[image] != "":
			state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: n.pull[image]}}
		case n.stuck[image]:
			state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		default:
			p.image, p.container, p.envd = image, p.container+1, &fakeEnvd{}
		}
	}
	next := *pod.Status.DeepCopy()
	if id := pod.Annotations[v1alpha1.AnnotationResetID]; id != "" && id != p.resetID {
		p.resetID = id
		p.container, p.envd, p.exit = p.container+1, &fakeEnvd{}, nil
		c := corev1.PodCondition{Type: v1alpha1.PodConditionReset, Status: corev1.ConditionTrue, Reason: "ResetDone", Message: id}
		if n.noReset {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "Busy", "a process cannot be killed"
		}
		next.Conditions = setCondition(next.Conditions, c)
	}
	ready := corev1.ConditionTrue
	if state.Running == nil {
		ready = corev1.ConditionFalse
	}
	last := corev1.ContainerState{}
	if p.exit != nil {
		last.Terminated = p.exit
	}
	next.Phase, next.PodIP = corev1.PodRunning, p.ip
	next.Conditions = setCondition(next.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: ready})
	next.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: p.image, ImageID: "sha256:" + p.image, RestartCount: p.restarts,
		ContainerID: fmt.Sprintf("fake://%s-%d", p.ip, p.container), State: state, LastTerminationState: last, Ready: state.Running != nil,
	}}
	if equalJSON(next, pod.Status) {
		return nil
	}
	return &next
}

func setCondition(all []corev1.PodCondition, c corev1.PodCondition) []corev1.PodCondition {
	for i := range all {
		if all[i].Type == c.Type {
			all[i].Status, all[i].Reason, all[i].Message = c.Status, c.Reason, c.Message
			return all
		}
	}
	return append(all, c)
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// crash restarts the Pod's container with an exit code, as a kubelet reports it.
func (n *fakeNode) crash(pod *corev1.Pod, reason string, code int32) {
	n.end(pod, corev1.ContainerStateTerminated{Reason: reason, ExitCode: code})
}

// end has the Pod's container end in a way, and start again.
func (n *fakeNode) end(pod *corev1.Pod, exit corev1.ContainerStateTerminated) {
	n.mu.Lock()
	p := n.pods[pod.UID]
	p.container++
	p.restarts++
	p.envd = &fakeEnvd{}
	p.exit = &exit
	n.mu.Unlock()
	n.queue.Add(client.ObjectKeyFromObject(pod))
}

// with changes the node's behaviour under its lock.
func (n *fakeNode) with(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// envdOf is the envd of the Pod with an address, as the tests inspect it.
func (n *fakeNode) envdOf(ip string) fakeEnvd {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.byIP[ip]; p != nil {
		return *p.envd
	}
	return fakeEnvd{}
}

// dial is the DialFunc of the bed.
func (n *fakeNode) dial(ctx context.Context, ip string, port int) (net.Conn, error) {
	n.mu.Lock()
	p := n.byIP[ip]
	n.mu.Unlock()
	if p == nil || port != EnvdPort {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	go func() {
		served := &oneConn{conn: far, closed: make(chan struct{})}
		_ = (&http.Server{Handler: n.envdHandler(ip), ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				served.close()
			}
		}}).Serve(served)
	}()
	return near, nil
}

// oneConn is a listener with a single connection.
type oneConn struct {
	conn   net.Conn
	once   sync.Once
	end    sync.Once
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	var c net.Conn
	l.once.Do(func() { c = l.conn })
	if c != nil {
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}
func (l *oneConn) close()         { l.end.Do(func() { close(l.closed) }) }
func (l *oneConn) Close() error   { l.close(); return nil }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

func (n *fakeNode) envdHandler(ip string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/state" {
			n.mu.Lock()
			defer n.mu.Unlock()
			p := n.byIP[ip]
			if p == nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_ = json.NewEncoder(w).Encode(envdState{p.envd.armed, p.envd.used, p.envd.body.LifecycleID})
			return
		}
		var body envdInit
		if r.Method != http.MethodPost || r.URL.Path != "/init" || json.NewDecoder(r.Body).Decode(&body) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		n.mu.Lock()
		gate := n.initGate
		n.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-r.Context().Done():
				return
			}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		p := n.byIP[ip]
		switch {
		case p == nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case n.envdStatus != 0:
			w.WriteHeader(n.envdStatus)
		case p.envd.armed && p.envd.token != r.Header.Get(headerInitToken):
			w.WriteHeader(http.StatusUnauthorized)
		default:
			p.envd.armed, p.envd.body, p.envd.token = true, body, r.Header.Get(headerInitToken)
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// initSecret reads the token that the pool's Pods were given.
func initSecret(ctx context.Context, c client.Client, ns, poolName string) (string, error) {
	var s corev1.Secret
	err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: pool.InitSecretName(poolName)}, &s)
	return string(s.Data[pool.InitSecretKey]), err
}
