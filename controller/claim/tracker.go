package claim

import (
	"container/list"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/pool"
)

// tracker is what the Manager knows of the cluster: fed by informers and by the answers to its own writes, whichever
// is newer. It is guarded by Manager.mu.
type tracker struct {
	pods  map[types.NamespacedName]*trackedPod
	pools map[types.NamespacedName]*trackedPool
	envs  map[types.NamespacedName]*trackedEnv
	nodes map[string]trackedNode
	// lines holds the waiting claims, by env, or by pool for pools that belong to no env.
	lines map[lineKey]*line
	// buried are the Pods deleted last: the answer to a write may arrive after the event of the deletion.
	buried recentSet
}

func newTracker() tracker {
	return tracker{
		pods:  map[types.NamespacedName]*trackedPod{},
		pools: map[types.NamespacedName]*trackedPool{},
		envs:  map[types.NamespacedName]*trackedEnv{},
		nodes: map[string]trackedNode{},
		lines: map[lineKey]*line{},
	}
}

// recentSet remembers the UIDs added last.
type recentSet struct {
	has  map[types.UID]struct{}
	ring []types.UID
	next int
}

func (s *recentSet) add(id types.UID) {
	const size = 4096
	if s.has == nil {
		s.has, s.ring = make(map[types.UID]struct{}, size), make([]types.UID, size)
	}
	delete(s.has, s.ring[s.next])
	s.has[id], s.ring[s.next] = struct{}{}, id
	s.next = (s.next + 1) % size
}

// trackedPod is one pool Pod.
type trackedPod struct {
	key types.NamespacedName
	// pod is the newest version known. It is shared and never changed in place.
	pod  *corev1.Pod
	gone bool
	// pool is nil while the pool is unknown; owner is the UID of the pool that made the Pod.
	pool  *trackedPool
	owner types.UID
	// sandbox is the claim that holds the Pod.
	sandbox *sandbox
	// reserved is the waiting claim that is writing itself onto the Pod.
	reserved *waiter
	// spent is the id of the ended claim that a clean Pod still carries; the next claim, or settleIdle, removes it.
	spent string
	// refused is the resourceVersion that a write was refused with: the Pod is not offered again before it changes.
	refused string
	// place is the Pod's place in pool.idle while it can be claimed.
	place *list.Element
	// changed is closed at the next change, when somebody waits for one.
	changed chan struct{}
}

// trackedPool is one SandboxPool.
type trackedPool struct {
	key            types.NamespacedName
	uid            types.UID
	env            string // empty for a pool outside any env
	group          string
	priority       int32
	revision       string
	replicas       int32
	image          string // what a sandbox runs
	idleImage      string // what an idle Pod runs
	team, user     string
	startupTimeout time.Duration
	idleTimeout    time.Duration
	generation     int64
	deleting       bool
	absent         bool // Pods name it, but no such pool is known
	// idle holds the claimable Pods, the longest idle first.
	idle *list.List
	pods map[types.NamespacedName]*trackedPod
	// initToken is read from the pool's Secret at the first claim.
	initToken string
}

type trackedEnv struct {
	timeoutMode TimeoutMode
	deleting    bool
	// members are the local members by pool name: their priorities.
	members map[string]int32
}

type trackedNode struct {
	unschedulable bool
	canReset      bool
}

// newer reports whether a is a later version of the same object than b.
func newer(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil && a != b || c > 0
}

// observePod takes in a version of a Pod. The caller holds mu.
func (m *Manager) observePod(pod *corev1.Pod) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	p := m.pods[key]
	if p != nil && p.pod.UID != pod.UID {
		if !newer(pod.ResourceVersion, p.pod.ResourceVersion) {
			return
		}
		m.dropPod(p)
		p = nil
	}
	if p == nil {
		if _, ok := m.buried.has[pod.UID]; ok {
			return
		}
		p = &trackedPod{key: key, pod: pod}
		m.pods[key] = p
	} else {
		if !newer(pod.ResourceVersion, p.pod.ResourceVersion) {
			return
		}
		p.pod = pod
	}
	m.attachPod(p)
	m.reviewPod(p)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// attachPod ties a Pod to the pool its labels name.
func (m *Manager) attachPod(p *trackedPod) {
	name := types.NamespacedName{Namespace: p.key.Namespace}
	// The label alone makes no member: anybody who may create Pods can set it.
	if owner := metav1.GetControllerOf(p.pod); owner != nil && owner.Kind == "SandboxPool" && owner.Name == p.pod.Labels[v1alpha1.LabelPool] {
		name.Name, p.owner = owner.Name, owner.UID
	}
	if p.pool != nil && p.pool.key == name {
		return
	}
	m.detachPod(p)
	if name.Name == "" {
		return
	}
	pl := m.pools[name]
	if pl == nil {
		pl = &trackedPool{key: name, absent: true, idle: list.New(), pods: map[types.NamespacedName]*trackedPod{}}
		m.pools[name] = pl
	}
	p.pool = pl
	pl.pods[p.key] = p
}

func (m *Manager) detachPod(p *trackedPod) {
	if p.pool == nil {
		return
	}
	m.unqueue(p)
	delete(p.pool.pods, p.key)
	if p.pool.absent && len(p.pool.pods) == 0 {
		delete(m.pools, p.pool.key)
	}
	p.pool = nil
}

// dropPod forgets a Pod that no longer exists. The caller holds mu.
func (m *Manager) dropPod(p *trackedPod) {
	if p.gone {
		return
	}
	p.gone = true
	m.buried.add(p.pod.UID)
	m.detachPod(p)
	delete(m.pods, p.key)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	if p.sandbox != nil {
		m.podGone(p.sandbox, p.pod)
	}
}

// reviewPod works out what a Pod is good for after it, its pool or its node has changed. The caller holds mu.
func (m *Manager) reviewPod(p *trackedPod) {
	id := p.pod.Labels[v1alpha1.LabelSandboxID]
	if id != p.spent {
		p.spent = ""
	}
	if p.sandbox != nil {
		m.reviewClaim(p.sandbox)
	} else if p.reserved == nil && p.pool != nil && id != "" && id != p.spent {
		m.adopt(p)
	}
	if !m.claimable(p) {
		m.unqueue(p)
		return
	}
	if p.place == nil {
		p.place = p.pool.idle.PushBack(p)
		m.offer(p.pool)
	}
}

// claimable reports whether a claim may be written onto the Pod. The caller holds mu.
func (m *Manager) claimable(p *trackedPod) bool {
	pod, pl := p.pod, p.pool
	switch {
	case p.gone, p.sandbox != nil, p.reserved != nil, pl == nil, pl.absent, pl.deleting, p.owner != pl.uid:
		return false
	case p.refused == pod.ResourceVersion:
		return false
	case pod.DeletionTimestamp != nil:
		return false
	case p.spent == "" && (phaseOf(pod) != v1alpha1.PodIdle || pod.Labels[v1alpha1.LabelSandboxID] != ""):
		return false
	case pod.Annotations[v1alpha1.AnnotationScaleDownProtected] != "":
		return false
	case pod.Labels[v1alpha1.LabelTemplateHash] != pl.revision:
		return false
	case pod.Status.Phase != corev1.PodRunning, pod.Status.PodIP == "", !podReady(pod):
		return false
	}
	node, known := m.nodes[pod.Spec.NodeName]
	return known && !node.unschedulable
}

func podReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (m *Manager) unqueue(p *trackedPod) {
	if p.place != nil {
		p.pool.idle.Remove(p.place)
		p.place = nil
	}
}

// observePool takes in a version of a pool. The caller holds mu.
func (m *Manager) observePool(sp *v1alpha1.SandboxPool) {
	key := types.NamespacedName{Namespace: sp.Namespace, Name: sp.Name}
	pl := m.pools[key]
	if pl == nil {
		pl = &trackedPool{key: key, idle: list.New(), pods: map[types.NamespacedName]*trackedPod{}}
		m.pools[key] = pl
	}
	same := !pl.absent && pl.uid == sp.UID && pl.generation == sp.Generation && pl.deleting == (sp.DeletionTimestamp != nil) &&
		pl.env == sp.Labels[v1alpha1.LabelEnv] && pl.team == sp.Labels[v1alpha1.LabelTeam] && pl.user == sp.Labels[v1alpha1.LabelUser]
	if same {
		return // a status write; nothing of it matters here
	}
	if pl.uid != sp.UID {
		pl.initToken = ""
	}
	spec := &sp.Spec
	pl.uid, pl.generation, pl.absent = sp.UID, sp.Generation, false
	pl.deleting = sp.DeletionTimestamp != nil
	pl.env, pl.group = sp.Labels[v1alpha1.LabelEnv], sp.Labels[v1alpha1.LabelScalingGroup]
	pl.team, pl.user = sp.Labels[v1alpha1.LabelTeam], sp.Labels[v1alpha1.LabelUser]
	pl.revision, pl.replicas = pool.Revision(spec), spec.Replicas
	pl.image, pl.idleImage = "", pool.MainImage(spec)
	if len(spec.Template.Spec.Containers) > 0 {
		pl.image = spec.Template.Spec.Containers[0].Image
	}
	pl.startupTimeout, pl.idleTimeout = 0, 0
	if spec.DefaultStartupTimeout != nil {
		pl.startupTimeout = spec.DefaultStartupTimeout.Duration
	}
	if spec.DefaultIdleTimeout != nil {
		pl.idleTimeout = spec.DefaultIdleTimeout.Duration
	}
	m.applyMember(pl)
	m.reviewPool(pl)
}

// applyMember copies what the env says about a pool onto it.
func (m *Manager) applyMember(pl *trackedPool) {
	env := m.envs[types.NamespacedName{Namespace: pl.key.Namespace, Name: pl.env}]
	if env == nil {
		return
	}
	if priority, ok := env.members[pl.key.Name]; ok {
		pl.priority = priority
	}
}

func (m *Manager) reviewPool(pl *trackedPool) {
	for _, p := range pl.pods {
		m.reviewPod(p)
	}
	m.offer(pl)
}

// dropPool forgets a pool. Its Pods are deleted by their owner reference.
func (m *Manager) dropPool(key types.NamespacedName) {
	pl := m.pools[key]
	if pl == nil {
		return
	}
	pl.absent, pl.uid = true, ""
	for _, p := range pl.pods {
		m.unqueue(p)
	}
	if len(pl.pods) == 0 {
		delete(m.pools, key)
	}
}

// observeEnv takes in a version of an env. The caller holds mu.
func (m *Manager) observeEnv(e *v1alpha1.SandboxEnv) {
	te := &trackedEnv{
		timeoutMode: TimeoutMode(e.Annotations[v1alpha1.AnnotationTimeoutMode]),
		deleting:    e.DeletionTimestamp != nil,
		members:     map[string]int32{},
	}
	for i := range e.Spec.Clusters {
		if e.Spec.Clusters[i].ClusterID != m.opts.ClusterID {
			continue
		}
		for j := range e.Spec.Clusters[i].Members {
			c := &e.Spec.Clusters[i].Members[j]
			te.members[c.Name] = c.Config.Priority
		}
	}
	key := types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
	m.envs[key] = te
	for name := range te.members {
		if pl := m.pools[types.NamespacedName{Namespace: e.Namespace, Name: name}]; pl != nil && pl.env == e.Name {
			m.applyMember(pl)
		}
	}
}

// observeNode takes in a version of a node. The caller holds mu.
func (m *Manager) observeNode(n *corev1.Node) {
	now := trackedNode{
		unschedulable: n.Spec.Unschedulable || n.DeletionTimestamp != nil,
		canReset:      n.Annotations[v1alpha1.AnnotationPodReset] == v1alpha1.PodResetV1,
	}
	was, known := m.nodes[n.Name]
	m.nodes[n.Name] = now
	if !known || was.unschedulable != now.unschedulable {
		m.reviewNode(n.Name)
	}
}

func (m *Manager) dropNode(name string) {
	delete(m.nodes, name)
	m.reviewNode(name)
}

// reviewNode looks at every Pod of a node; nodes are cordoned rarely.
func (m *Manager) reviewNode(name string) {
	for _, p := range m.pods {
		if p.pod.Spec.NodeName == name {
			m.reviewPod(p)
		}
	}
}
