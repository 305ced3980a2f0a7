package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

const (
	defaultStartupTimeout = 2 * time.Minute
	// MetadataTimeoutMode is the metadata key that chooses a TimeoutMode; it is consumed, not stored.
	MetadataTimeoutMode = "agentbox.scitix.ai/timeout-mode"
)

var errStopping = errors.New("the sandbox is ending")

// Create claims a Pod and returns when the sandbox is armed. When ctx ends first, the Pod goes back.
func (m *Manager) Create(ctx context.Context, r Request) (Sandbox, error) {
	began := m.clock.Now()
	sb, err := m.create(ctx, r)
	if err != nil {
		err = m.explain(ctx, err)
	}
	m.metrics.created(m.clock.Since(began), err)
	return sb, err
}

func (m *Manager) create(caller context.Context, r Request) (Sandbox, error) {
	select {
	case <-m.ready:
	default:
		return Sandbox{}, &Error{Code: CodeInternal, Message: "the claim path is not ready yet", Hint: "try again in a moment", RetryAfter: time.Second}
	}
	if err := m.life.Err(); err != nil {
		return Sandbox{}, err // explained as a controller that stops
	}
	c, err := m.newClaim(&r)
	if err != nil {
		return Sandbox{}, err
	}
	ctx, cancel := context.WithTimeoutCause(caller, c.startup, errStartupTimeout)
	defer cancel()
	defer context.AfterFunc(m.life, cancel)()

	sb, err := m.acquire(ctx, c)
	if err != nil {
		return Sandbox{}, err
	}
	// From here on the claim stands on the Pod. Whatever happens, it ends by way of the sandbox's own end.
	ready, err := m.prepare(ctx, c, sb)
	if err == nil && caller.Err() != nil {
		err = context.Cause(caller)
	}
	if err != nil {
		m.abandon(sb, err)
		return Sandbox{}, err
	}
	return ready, nil
}

// claimSpec is a request with everything resolved that does not depend on the Pod.
type claimSpec struct {
	waiter
	request  *Request
	sandbox  Sandbox // ID, Owner, Env, Metadata, Timeout, TimeoutMode
	startup  time.Duration
	deadline time.Time
	secrets  secrets
}

// startupTimeout is how long a claim may take: what somebody chose outranks the defaults.
func startupTimeout(r *Request, ofPool time.Duration) time.Duration {
	return cmp.Or(r.StartupTimeout, ofPool, r.DefaultStartupTimeout, defaultStartupTimeout)
}

// newClaim checks a request against what is known of its env or pool.
func (m *Manager) newClaim(r *Request) (*claimSpec, error) {
	if (r.Env == "") == (r.Pool == "") {
		return nil, &Error{Code: CodeInvalid, Message: "a claim names either an environment or a pool", Hint: "set exactly one of Env and Pool"}
	}
	if r.Owner.Namespace == "" {
		return nil, &Error{Code: CodeInvalid, Message: "a claim needs its owner's namespace"}
	}
	if r.Timeout < 0 || r.StartupTimeout < 0 || r.DefaultStartupTimeout < 0 {
		return nil, &Error{Code: CodeInvalid, Message: "a timeout must not be negative", Hint: "leave it out for the pool's default"}
	}
	if err := checkMetadata(r.Metadata); err != nil {
		return nil, err
	}
	if err := CheckImage(r.Image); err != nil {
		return nil, err
	}
	c := &claimSpec{request: r}
	c.given = make(chan *trackedPod, 1)
	c.pool, c.group, c.team, c.user = r.Pool, r.ScalingGroup, r.Owner.Team, r.Owner.User
	c.key = lineKey{namespace: r.Owner.Namespace, env: r.Env, pool: r.Pool}
	c.sandbox = Sandbox{
		ID: newID(m.clock.Now()), Owner: r.Owner, Env: r.Env, Status: StatusStarting,
		Metadata: maps.Clone(r.Metadata), Timeout: r.Timeout, TimeoutMode: r.TimeoutMode,
	}
	if mode, ok := c.sandbox.Metadata[MetadataTimeoutMode]; ok {
		delete(c.sandbox.Metadata, MetadataTimeoutMode)
		if c.sandbox.TimeoutMode == "" {
			c.sandbox.TimeoutMode = TimeoutMode(mode)
		}
	}
	if r.Secure {
		c.secrets.Access = newToken()
	}
	if r.PrivateTraffic {
		c.secrets.Traffic = newToken()
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Pool != "" {
		pl := m.pools[types.NamespacedName{Namespace: r.Owner.Namespace, Name: r.Pool}]
		if pl == nil || pl.absent || !pl.ownedBy(c.team, c.user) {
			return nil, m.noCandidate(&c.waiter)
		}
		c.key = pl.lineKey()
		c.sandbox.Env = pl.env
	}
	pools := m.candidates(&c.waiter)
	if len(pools) == 0 {
		return nil, m.noCandidate(&c.waiter)
	}
	if env := m.envs[types.NamespacedName{Namespace: r.Owner.Namespace, Name: c.sandbox.Env}]; env != nil && c.sandbox.TimeoutMode == "" {
		c.sandbox.TimeoutMode = env.timeoutMode
	}
	switch c.sandbox.TimeoutMode {
	case TimeoutIdle, TimeoutAbsolute:
	case "":
		c.sandbox.TimeoutMode = TimeoutIdle
	default:
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("timeout mode %q is not known", c.sandbox.TimeoutMode), Hint: "use idle or absolute"}
	}
	c.startup = startupTimeout(r, pools[0].startupTimeout)
	c.deadline = m.clock.Now().Add(c.startup)
	m.tickets++
	c.ticket = m.tickets
	return c, nil
}

// acquire waits for a Pod and writes the claim onto it. A Pod that somebody else changed first is not ours, nothing
// was written, and the claim takes another one.
func (m *Manager) acquire(ctx context.Context, c *claimSpec) (*sandbox, error) {
	for {
		m.mu.Lock()
		err := m.join(&c.waiter)
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
		var p *trackedPod
		select {
		case p = <-c.given:
		case <-ctx.Done():
			m.mu.Lock()
			left := m.leave(&c.waiter)
			m.mu.Unlock()
			if !left { // a Pod was given at the same moment
				m.giveUp(<-c.given)
			}
			return nil, context.Cause(ctx)
		}
		sb, err := m.take(ctx, c, p)
		if err == nil || !errors.Is(err, errTryAnother) {
			return sb, err
		}
	}
}

var errTryAnother = errors.New("the Pod was changed by somebody else")

// giveUp ends a reservation without a write.
func (m *Manager) giveUp(p *trackedPod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.reserved = nil
	m.reviewPod(p)
	if id := p.spent; id != "" {
		m.spawnLocked(func() { m.settleIdle(p, id) }) // the one before may have passed by the reservation
	}
}

// take writes the claim onto a reserved Pod.
func (m *Manager) take(ctx context.Context, c *claimSpec, p *trackedPod) (*sandbox, error) {
	m.mu.Lock()
	pod, pl := p.pod, p.pool
	if p.gone || pl == nil {
		p.reserved = nil
		m.mu.Unlock()
		return nil, errTryAnother
	}
	info := c.sandbox
	if info.Timeout == 0 {
		info.Timeout = pl.idleTimeout
	}
	info.Env, info.Pool, info.Group = pl.env, pl.key.Name, pl.group
	image := pl.image
	if c.request.Image != "" {
		image = c.request.Image
	}
	spent := p.spent != ""
	refused := sameImage(image, pl.idleImage) && !sameImage(image, pl.image)
	m.mu.Unlock()
	if refused {
		m.giveUp(p)
		return nil, &Error{
			Code:    CodeInvalid,
			Message: fmt.Sprintf("image %q is what idle Pods of the pool run; a sandbox cannot", image),
			Hint:    "name another image, or none for the pool's own",
		}
	}

	now := m.clock.Now()
	info.ClaimedAt, info.LastActive = now, now
	if info.TimeoutMode == TimeoutAbsolute && info.Timeout > 0 {
		info.EndAt = now.Add(info.Timeout)
	}
	info.Pod, info.PodIP, info.Node = pod.Name, pod.Status.PodIP, pod.Spec.NodeName
	info.CPU, info.Memory = sizeOf(pod)
	info.Images = imagesOf(pod)
	main := pod.Spec.Containers[0].Name
	var swap *containerBefore
	if was := info.Images[main]; !sameImage(image, was) {
		info.Images[main] = image
		swap = &containerBefore{image: was}
		if s := mainStatus(pod); s != nil {
			swap.containerID, swap.imageID = s.ContainerID, s.ImageID
		}
	}
	sealed := m.sealer.seal(info.ID, c.secrets)
	_, err := m.put(ctx, pod, func(next *corev1.Pod) error {
		if spent {
			writeIdle(next)
		}
		return writeClaim(next, &info, c.startup, sealed, c.request.PrivateTraffic)
	})
	if err != nil {
		return nil, m.notTaken(ctx, c, p, pod, err)
	}
	return m.hold(c, p, info, swap), nil
}

// hold registers a claim that stands on its Pod.
func (m *Manager) hold(c *claimSpec, p *trackedPod, info Sandbox, swap *containerBefore) *sandbox {
	sb := newSandbox(m.life, p, info)
	sb.secrets, sb.private = c.secrets, c.request.PrivateTraffic
	sb.plain = len(c.request.EnvVars) == 0
	sb.swap, sb.used = swap, swap != nil
	m.mu.Lock()
	defer m.mu.Unlock()
	p.reserved, p.sandbox = nil, sb
	m.sandboxes[sb.id] = sb
	if p.gone {
		m.podGone(sb, p.pod)
	} else {
		m.reviewClaim(sb)
	}
	return sb
}

// notTaken deals with a failed claim write. When it is not certain that nothing was written, the Pod is fenced off:
// deleted at the version that does not carry the claim, so that a write still under way cannot land.
func (m *Manager) notTaken(ctx context.Context, c *claimSpec, p *trackedPod, pod *corev1.Pod, cause error) error {
	var own *changeError
	if notWritten(cause) || errors.As(cause, &own) {
		m.mu.Lock()
		p.refused = pod.ResourceVersion
		m.mu.Unlock()
		m.giveUp(p)
		if isConflictOrGone(cause) {
			m.metrics.conflicts.Inc()
			return errTryAnother
		}
		return &Error{Code: CodeInternal, Message: "the claim could not be written", Hint: "see the controller's log", Err: cause}
	}
	if !m.spawn(func() { m.fence(c.sandbox.ID, p) }) {
		m.log.Warn("a claim was written without an answer while the controller stops; the next one decides", "pod", p.key, "error", cause)
	}
	return &Error{Code: CodeInternal, Message: "the API server did not confirm the claim", Hint: "try again", RetryAfter: time.Second, Err: cause}
}

// fence settles a claim write without an answer.
func (m *Manager) fence(id string, p *trackedPod) {
	for {
		pod, err := m.read(m.life, p)
		if err != nil {
			break // gone, or the controller stops
		}
		if pod.Labels[v1alpha1.LabelSandboxID] == id {
			break // it was written: adopted below, and ended as never armed
		}
		if err := m.removeAt(m.life, pod); err == nil {
			break
		}
		if !m.sleep(m.life, 100*time.Millisecond) {
			break
		}
	}
	m.giveUp(p)
}
