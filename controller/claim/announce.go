package claim

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// announceEvery gathers changes of the waiting counts into one announcement per pool.
const announceEvery = 100 * time.Millisecond

// announcements tell the pool reconciler that the number of claims waiting for a pool has changed. Guarded by
// Manager.mu, but for the channels.
type announcements struct {
	pools map[types.NamespacedName]struct{}
	wake  chan struct{}
	out   chan event.GenericEvent
}

func newAnnouncements() announcements {
	return announcements{
		pools: map[types.NamespacedName]struct{}{},
		wake:  make(chan struct{}, 1),
		out:   make(chan event.GenericEvent),
	}
}

// WaitingChanged names pools whose number of waiting claims has changed. Changes that follow one another closely are
// announced together.
func (m *Manager) WaitingChanged() <-chan event.GenericEvent { return m.announce.out }

// countWaiting changes a pool's number of waiting claims. The caller holds mu.
func (m *Manager) countWaiting(pool types.NamespacedName, by int) {
	if m.waiting[pool] += by; m.waiting[pool] <= 0 {
		delete(m.waiting, pool)
	}
	m.announce.pools[pool] = struct{}{}
	select {
	case m.announce.wake <- struct{}{}:
	default:
	}
}

func (m *Manager) announceWaiting(ctx context.Context) {
	for {
		select {
		case <-m.announce.wake:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		pools := m.announce.pools
		m.announce.pools = map[types.NamespacedName]struct{}{}
		m.mu.Unlock()
		for key := range pools {
			e := event.GenericEvent{Object: &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}
			select {
			case m.announce.out <- e:
			case <-ctx.Done():
				return
			}
		}
		if !m.sleep(ctx, announceEvery) {
			return
		}
	}
}
