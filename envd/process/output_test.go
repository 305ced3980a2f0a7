package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	spec "navix.sh/agentbox/envd/spec/process"
)

func data(n int) *spec.ProcessEvent {
	return &spec.ProcessEvent{Event: &spec.ProcessEvent_Data{Data: stdoutEvent(make([]byte, n))}}
}

func end() *spec.ProcessEvent {
	return &spec.ProcessEvent{Event: &spec.ProcessEvent_End{End: &spec.ProcessEvent_EndEvent{Exited: true}}}
}

// drain reads to the end and returns how much data came.
func drain(t *testing.T, s *subscriber) (int, error) {
	t.Helper()
	total := 0
	for {
		event, err := s.next(t.Context(), nil)
		if err != nil {
			return total, err
		}
		if event.GetEnd() != nil {
			return total, nil
		}
		total += len(event.GetData().GetStdout())
	}
}

const chunks, chunk = 100, 64 << 10 // six times what a queue holds

func TestSoleSubscriberMissesNothingHoweverSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput()
		s := o.subscribe()
		go func() {
			for range chunks {
				o.publish(data(chunk))
			}
			o.finish(end())
		}()
		synctest.Wait() // the publisher has run into the bound
		if s.bytes < queueBytes || s.bytes >= queueBytes+chunk+eventOverhead {
			t.Errorf("%d bytes are queued, want just %d", s.bytes, queueBytes)
		}
		if total, err := drain(t, s); total != chunks*chunk || err != nil {
			t.Errorf("got %d bytes, %v", total, err)
		}
	})
}

func TestTinyEventsAreBoundedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput()
		s := o.subscribe()
		go func() {
			for range 1 << 14 {
				o.publish(data(1))
			}
		}()
		synctest.Wait()
		if len(s.queue) > queueBytes/eventOverhead {
			t.Errorf("%d events are queued", len(s.queue))
		}
		o.hurry()
	})
}

func TestStuckSubscriberIsCutAndHoldsUpNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput()
		stuck, reading := o.subscribe(), o.subscribe()
		go func() {
			for range chunks {
				o.publish(data(chunk))
			}
			o.finish(end())
		}()
		if total, err := drain(t, reading); total != chunks*chunk || err != nil {
			t.Errorf("the reading one got %d bytes, %v", total, err)
		}
		if _, err := drain(t, stuck); !errors.Is(err, errLagging) {
			t.Errorf("the stuck one got %v", err)
		}
	})
}

func TestStuckSubscriberThatLeavesFreesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput()
		stuck := o.subscribe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range chunks {
				o.publish(data(chunk))
			}
		}()
		synctest.Wait()
		stuck.leave()
		<-done
	})
}

func TestHurryFreesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput()
		stuck := o.subscribe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range chunks {
				o.publish(data(chunk))
			}
			o.finish(end())
		}()
		synctest.Wait()
		o.hurry()
		<-done
		if _, err := drain(t, stuck); !errors.Is(err, errLagging) {
			t.Errorf("the stuck one got %v", err)
		}
	})
}

func TestEndComesOnceAndAlsoLate(t *testing.T) {
	o := newOutput()
	early := o.subscribe()
	o.finish(end())
	o.finish(end())
	o.publish(data(1)) // a background child
	for name, s := range map[string]*subscriber{"early": early, "late": o.subscribe()} {
		if total, err := drain(t, s); total != 0 || err != nil {
			t.Errorf("%s: %d bytes, %v", name, total, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if event, err := s.next(ctx, nil); event != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: behind the end came %v, %v", name, event, err)
		}
	}
}

func TestOutputWithoutSubscribersIsDiscarded(t *testing.T) {
	o := newOutput()
	for range chunks {
		o.publish(data(chunk))
	}
	s := o.subscribe()
	o.publish(data(5))
	o.finish(end())
	if total, err := drain(t, s); total != 5 || err != nil {
		t.Errorf("got %d bytes, %v", total, err)
	}
}
