package claim

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// ending says how a sandbox ends.
type ending struct {
	status   Status
	reason   string // FailureReason
	message  string
	exitCode *int32
	at       time.Time // zero for now
}

// end closes the sandbox's route and starts its release. Only the first cause counts.
func (m *Manager) end(sb *sandbox, e ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(sb, e)
}

func (m *Manager) endLocked(sb *sandbox, e ending) {
	if sb.ending {
		return
	}
	sb.ending = true
	m.unroute(sb.id)
	m.timers.set(sb, time.Time{})
	sb.info.Status, sb.info.TerminatedAt = e.status, m.clock.Now()
	if !e.at.IsZero() {
		sb.info.TerminatedAt = e.at
	}
	sb.info.LastActive = sb.activeAt()
	sb.info.FailureReason, sb.info.FailureMessage, sb.info.ExitCode = e.reason, clipMessage(e.message), e.exitCode
	sb.kill(errStopping)
	m.metrics.ended(e)
	m.startRelease(sb, true)
}

func (m *Manager) startRelease(sb *sandbox, write bool) {
	if !m.spawnLocked(func() { m.release(m.life, sb, write) }) {
		m.log.Info("a sandbox ends while the controller stops; the next one continues", "sandbox", sb.id)
	}
}

// release gives an ended sandbox's Pod back: stop data on the Pod, the record, then a reset or a deletion. Every
// step may find that a former process has done it; when the Manager stops, the next one goes on from the Pod.
func (m *Manager) release(ctx context.Context, sb *sandbox, write bool) {
	m.mu.Lock()
	untouched := write && m.untouched(sb)
	info, used := sb.info, sb.used && !untouched
	reset, image := m.resettable(sb, used)
	m.mu.Unlock()
	gone := false
	if write {
		_, err := m.update(ctx, sb.pod, func(pod *corev1.Pod) error {
			if pod.Labels[v1alpha1.LabelSandboxID] != sb.id {
				return errPodGone
			}
			if phaseOf(pod) == v1alpha1.PodStopping {
				return errUnchanged
			}
			if reset {
				pod.Spec.Containers[0].Image = image
				if used {
					pod.Annotations[v1alpha1.AnnotationResetID] = sb.id
				}
			}
			return writeStop(pod, &info)
		})
		gone = errors.Is(err, errPodGone)
		if err != nil && !gone {
			m.log.Error("the end of a sandbox is not written", "sandbox", sb.id, "pod", sb.pod.key, "error", err)
			if ctx.Err() != nil {
				return
			}
			reset = false
		}
	}
	close(sb.stopped)
	if !write {
		// A former process wrote the end; whether it asked for a reset stands on the Pod.
		m.mu.Lock()
		reset = reset && sb.pod.pod.Annotations[v1alpha1.AnnotationResetID] == sb.id
		m.mu.Unlock()
	}

	for {
		err := m.records.Append(ctx, toRecord(&info))
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		m.log.Error("the record of a sandbox is not written yet", "sandbox", sb.id, "error", err)
		if !m.sleep(ctx, time.Second) {
			return
		}
	}
	m.mu.Lock()
	delete(m.sandboxes, sb.id)
	m.mu.Unlock()
	if gone {
		m.detach(sb)
		return
	}
	way := "reset"
	switch {
	case !reset || !untouched:
	case m.lock(ctx, sb):
		way = "unused"
	default:
		used = true
		reset = m.demandReset(ctx, sb)
	}
	if reset && m.recycle(ctx, sb, used) {
		m.metrics.recycled.WithLabelValues(way).Inc()
		return
	}
	if ctx.Err() == nil {
		m.discard(ctx, sb)
	}
}

// untouched reports whether an ended sandbox looks as if nobody had used it: it was armed on the Pod's own image, with
// no variables, which envd may still hold in its memory, and nothing was connected to it. The caller holds mu.
func (m *Manager) untouched(sb *sandbox) bool {
	return sb.plain && sb.swap == nil && sb.info.Armed && sb.info.Status != StatusFailed && !sb.dialed.Load()
}

// lockLimit bounds how long a release waits for envd.
const lockLimit = time.Second

// lock takes an untouched sandbox's token from its envd, and reports whether that has served nobody, around the gateway
// neither. Then the Pod is as it was and needs no reset.
func (m *Manager) lock(ctx context.Context, sb *sandbox) bool {
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	token, err := m.initToken(ctx, sb.pod.pool)
	if err != nil || token == "" {
		return false // whoever knew the sandbox's token could set another one
	}
	ip := sb.info.PodIP
	if err := initEnvd(ctx, m.envd, ip, token, &envdInit{AccessToken: newToken(), Timestamp: m.clock.Now()}); err != nil {
		return false
	}
	state, err := stateOfEnvd(ctx, m.envd, ip, token)
	return err == nil && !state.EverUsed
}

// demandReset asks the node agent for a reset that the end of the sandbox did not ask for.
func (m *Manager) demandReset(ctx context.Context, sb *sandbox) bool {
	m.mu.Lock()
	ok, _ := m.resettable(sb, true)
	m.mu.Unlock()
	if !ok {
		return false
	}
	_, err := m.update(ctx, sb.pod, func(pod *corev1.Pod) error {
		if pod.Labels[v1alpha1.LabelSandboxID] != sb.id {
			return errNotClean
		}
		pod.Annotations[v1alpha1.AnnotationResetID] = sb.id
		return nil
	})
	return err == nil
}

// resettable reports whether the Pod can return to its pool, and on which image it idles there. The caller holds mu.
func (m *Manager) resettable(sb *sandbox, used bool) (ok bool, image string) {
	p := sb.pod
	if p.gone || p.pool == nil || p.pool.absent || p.pool.deleting {
		return false, ""
	}
	pod := p.pod
	switch {
	case pod.DeletionTimestamp != nil, pod.Status.Phase != corev1.PodRunning,
		pod.Labels[v1alpha1.LabelTemplateHash] != p.pool.revision:
		return false, ""
	case used && !m.nodes[pod.Spec.NodeName].canReset:
		return false, ""
	}
	return p.pool.idleImage != "", p.pool.idleImage
}

var errNotClean = errors.New("the Pod cannot be reset")

// recycle waits for the node agent's reset and offers the Pod to the next claim. It reports false when the Pod must be
// deleted instead.
func (m *Manager) recycle(ctx context.Context, sb *sandbox, used bool) bool {
	if used {
		limited, cancel := context.WithTimeout(ctx, m.opts.ResetTimeout)
		defer cancel()
		_, err := m.await(limited, sb.pod, func(pod *corev1.Pod) (bool, error) { return resetDone(pod, sb.id) })
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, errPodGone) {
				m.log.Warn("a used Pod is deleted instead of reset", "pod", sb.pod.key, "sandbox", sb.id, "error", err)
			}
			return false
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := sb.pod
	if p.gone || p.pod.DeletionTimestamp != nil || p.pod.Labels[v1alpha1.LabelSandboxID] != sb.id {
		return false
	}
	p.sandbox, p.spent = nil, sb.id
	m.reviewPod(p)
	m.spawnLocked(func() { m.settleIdle(p, sb.id) })
	return true
}

// resetDone reads the node agent's answer to the reset request.
func resetDone(pod *corev1.Pod, id string) (bool, error) {
	if pod.DeletionTimestamp != nil {
		return false, errNotClean
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != v1alpha1.PodConditionReset {
			continue
		}
		switch {
		case c.Status == corev1.ConditionTrue && c.Message == id:
			return true, nil
		case c.Status == corev1.ConditionFalse && pod.Annotations[v1alpha1.AnnotationResetID] == id:
			return false, errors.New("node agent: " + c.Reason + ": " + clipMessage(c.Message))
		}
	}
	return false, nil
}

// discard deletes the Pod; the pool replaces it. The record is durable by now, so the protection goes first.
func (m *Manager) discard(ctx context.Context, sb *sandbox) {
	m.metrics.recycled.WithLabelValues("delete").Inc()
	backoff := 50 * time.Millisecond
	for {
		_, err := m.update(ctx, sb.pod, func(pod *corev1.Pod) error {
			if !removeFinalizer(pod) {
				return errUnchanged
			}
			return nil
		})
		if err == nil {
			err = m.remove(ctx, sb.pod)
		}
		if err == nil || errors.Is(err, errPodGone) {
			m.detachWhenGone(sb, err)
			return
		}
		m.log.Error("a used Pod is not deleted yet", "pod", sb.pod.key, "sandbox", sb.id, "error", err)
		if !m.sleep(ctx, backoff) {
			return
		}
		backoff = min(2*backoff, 10*time.Second)
	}
}

// detachWhenGone frees the Pod of an ended claim. A Pod whose deletion is only under way stays marked as held; the
// event of its end drops it.
func (m *Manager) detachWhenGone(sb *sandbox, err error) {
	if errors.Is(err, errPodGone) {
		m.detach(sb)
	}
}

// detach unties the sandbox from its Pod, which is idle again or gone.
func (m *Manager) detach(sb *sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sb.pod.sandbox == sb {
		sb.pod.sandbox = nil
	}
	if !sb.pod.gone {
		m.reviewPod(sb.pod)
	}
}
