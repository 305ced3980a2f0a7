package claim

import (
	"context"
	"errors"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// What a Pod says follows what is true with a delay of Options.SettleAfter in two cases, so that a sandbox of short
// life, and a Pod that is claimed again at once, cost no write for a state that nobody saw:
//
//   - a sandbox is armed: until the mark is written, envd itself is the witness (see ask);
//   - a Pod is clean again: until it says so it carries the claim that has ended, and trackedPod.spent names that.

// settleArmed writes the armed mark of a sandbox that lives on.
func (m *Manager) settleArmed(sb *sandbox) {
	if !m.sleep(sb.life, m.opts.SettleAfter) {
		return
	}
	_, err := m.update(sb.life, sb.pod, func(pod *corev1.Pod) error {
		m.mu.Lock()
		info, ending := sb.info, sb.ending
		info.LastActive = sb.activeAt()
		m.mu.Unlock()
		switch {
		case ending, pod.Annotations[v1alpha1.AnnotationSandboxID] != sb.id:
			return errStopping
		case pod.Annotations[v1alpha1.AnnotationArmed] == sb.id:
			return errUnchanged
		case phaseOf(pod) != v1alpha1.PodStarting, pod.DeletionTimestamp != nil:
			return errStopping
		}
		writeArmed(pod, &info)
		return nil
	})
	if err != nil && sb.life.Err() == nil && !errors.Is(err, errStopping) && !errors.Is(err, errPodGone) {
		m.log.Error("that a sandbox is running is not written", "sandbox", sb.id, "pod", sb.pod.key, "error", err)
	}
}

// settleIdle strips the ended claim from a Pod that nobody has claimed meanwhile.
func (m *Manager) settleIdle(p *trackedPod, id string) {
	if !m.sleep(m.life, m.opts.SettleAfter) {
		return
	}
	m.mu.Lock()
	if p.spent != id || p.reserved != nil || p.gone {
		m.mu.Unlock()
		return
	}
	p.reserved = &waiter{} // no claim may race with the write
	m.unqueue(p)
	m.mu.Unlock()
	_, err := m.update(m.life, p, func(pod *corev1.Pod) error {
		if pod.Labels[v1alpha1.LabelSandboxID] != id {
			return errUnchanged
		}
		writeIdle(pod)
		return nil
	})
	m.giveUp(p)
	if err != nil && m.life.Err() == nil && !errors.Is(err, errPodGone) {
		m.log.Error("that a Pod is idle again is not written", "pod", p.key, "error", err)
	}
}

// askLimit bounds how long a restart waits for an envd to say whether it was armed.
const askLimit = 5 * time.Second

// ask finds out whether a sandbox, whose Pod does not say so, was armed when the former controller ended. If it was, its
// creator may hold it, and it lives on. A start waits until that is decided. The caller holds mu.
func (m *Manager) ask(sb *sandbox) {
	decided := make(chan struct{})
	if m.spawnLocked(func() {
		defer close(decided)
		armed := m.armedBefore(sb)
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case sb.ending || m.life.Err() != nil:
		case armed:
			if s := mainStatus(sb.pod.pod); s != nil {
				sb.info.ContainerID = s.ContainerID
			}
			sb.info.Armed, sb.info.Status, sb.info.StartedAt = true, StatusRunning, sb.info.ClaimedAt
			m.resume(sb)
			m.spawnLocked(func() { m.settleArmed(sb) })
		default:
			m.endLocked(sb, neverReady)
		}
	}) {
		m.asking = append(m.asking, decided)
	}
}

func (m *Manager) armedBefore(sb *sandbox) bool {
	ctx, cancel := context.WithTimeout(sb.life, askLimit)
	defer cancel()
	for {
		token, err := m.initToken(ctx, sb.pod.pool)
		if err == nil {
			var state envdState
			if state, err = stateOfEnvd(ctx, m.envd, sb.info.PodIP, token); err == nil {
				return state.Armed && state.LifecycleID == sb.id
			}
			if errors.Is(err, syscall.ECONNREFUSED) {
				return false // an armed envd listens
			}
		}
		if !m.sleep(ctx, 50*time.Millisecond) {
			m.log.Warn("whether a sandbox was ready cannot be told; it ends", "sandbox", sb.id, "error", err)
			return false
		}
	}
}
