package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// errDead is what a process that was killed would never see; it only keeps its goroutines from going on.
var errDead = errors.New("the process is dead")

// mortal is a client whose process is killed at its n-th write: just before it reaches the server, or just after.
type mortal struct {
	client.WithWatch
	mu    sync.Mutex
	left  int
	after bool
	dead  chan struct{}
}

func newMortal(b *bed, writes int, after bool) *mortal {
	d := &mortal{left: writes, after: after, dead: make(chan struct{})}
	write := func(do func() error) error {
		d.mu.Lock()
		if d.isDead() {
			d.mu.Unlock()
			return errDead
		}
		d.left--
		last := d.left == 0
		if last && !d.after {
			close(d.dead)
			d.mu.Unlock()
			return errDead
		}
		d.mu.Unlock()
		err := do()
		if last {
			close(d.dead)
			return errDead
		}
		return err
	}
	d.WithWatch = b.intercept(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if d.isDead() {
				return errDead
			}
			return c.Get(ctx, k, o, opts...)
		},
	})
	return d
}

func (d *mortal) isDead() bool {
	select {
	case <-d.dead:
		return true
	default:
		return false
	}
}

// TestKilledAtEveryWrite kills the controller before and after each write of a sandbox's life, starts another one on
// the same cluster, and looks for claims that were lost, doubled or left behind.
func TestKilledAtEveryWrite(t *testing.T) {
	ns := testBed.env(t, 2)
	_, stop := testBed.manager(t) // mints the master key, which is no part of a sandbox's life
	stop()
	for _, image := range []string{"", otherImage} {
		for _, after := range []bool{false, true} {
			for n := 1; ; n++ {
				died := false
				t.Run(fmt.Sprintf("image=%q/write=%d/after=%v", image, n, after), func(t *testing.T) {
					died = killAtWrite(t, ns, image, n, after)
				})
				if !died || t.Failed() {
					break
				}
			}
		}
	}
}

func killAtWrite(t *testing.T, ns, image string, n int, after bool) (died bool) {
	process := newMortal(testBed, n, after)
	m, stop := testBed.manager(t, func(o *Options) { o.Client = process })
	limit, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	ctx, cancel := context.WithCancel(limit)
	defer cancel()
	go func() { // a dead process answers nobody
		select {
		case <-process.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	sb, created := m.Create(ctx, Request{Owner: owner(ns), Env: "env", Image: image, Secure: true, Metadata: map[string]string{"n": "1"}})
	killed := errors.New("not tried")
	if created == nil {
		killed = m.Kill(ctx, sb.ID, ReasonKilled)
	}
	if killed == nil {
		// The rest of the life happens behind the answer.
		await(t, limit, "the Pod to be given back, or the process to die", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			held := false
			for _, p := range m.pods {
				held = held || p.key.Namespace == ns && p.sandbox != nil
			}
			return !held || process.isDead()
		})
	}
	stop()

	next, stopNext := testBed.manager(t)
	defer stopNext()
	live, err := next.List(t.Context(), Filter{Owner: Owner{Namespace: ns}})
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case created != nil && after && len(live) == 1 && live[0].Armed:
		// The armed mark is the point of no return. The sandbox is whole; only the answer was lost, and its owner
		// finds it in the list.
		if err := next.Kill(t.Context(), live[0].ID, ReasonKilled); err != nil {
			t.Error(describeError(err))
		}
	case created != nil:
		if len(live) > 0 {
			t.Errorf("nobody was given sandbox %+v, and it lives", live[0])
		}
	case killed == nil:
		if len(live) > 0 {
			t.Errorf("killed sandbox %+v lives", live[0])
		}
		if r := finished(t, next, sb.ID); r.Status != StatusCompleted || r.Metadata["n"] != "1" {
			t.Errorf("the record of a killed sandbox: %+v", r)
		}
	case len(live) == 1: // the kill was never written: the sandbox must have survived, with its token
		if r, ok := next.Route(sb.ID); !ok || r.AccessToken != sb.AccessToken {
			t.Errorf("the surviving sandbox is routed: %v, with its token: %v", ok, r.AccessToken == sb.AccessToken)
		}
		if err := next.Kill(t.Context(), sb.ID, ReasonKilled); err != nil {
			t.Errorf("kill the survivor: %v", describeError(err))
		}
		finished(t, next, sb.ID)
	default: // the kill was written, its answer was lost
		if r := finished(t, next, sb.ID); r.Status != StatusCompleted {
			t.Errorf("the record of a killed sandbox: %+v", r)
		}
	}
	testBed.awaitIdle(t, ns, 2)
	// Both Pods can be claimed again, each by one.
	a := mustCreate(t, next, Request{Owner: owner(ns), Env: "env"})
	b := mustCreate(t, next, Request{Owner: owner(ns), Env: "env"})
	if a.Pod == b.Pod {
		t.Errorf("Pod %s was claimed twice", a.Pod)
	}
	for _, id := range []string{a.ID, b.ID} {
		if err := next.Kill(t.Context(), id, ReasonKilled); err != nil {
			t.Error(describeError(err))
		}
	}
	testBed.awaitIdle(t, ns, 2)
	return process.isDead()
}
