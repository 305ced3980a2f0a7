package node

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

// BenchmarkReset resets used Pods one after the other, and eight at a time; each reset ends when the Pod is ready
// again and the API says so. The agent's part of the processor time contains the API server's.
func BenchmarkReset(b *testing.B) {
	bed := newBed(b)
	const pods = 8
	w, err := bed.client.CoreV1().Pods("default").Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	var mu sync.Mutex
	waiting := map[string]chan struct{}{}
	for i := range pods {
		bed.create(serverPod(fmt.Sprint("p", i)))
	}
	for i := range pods {
		bed.await(fmt.Sprint("p", i), "ready", ready)
	}
	var pids []int
	for i := range pods {
		pids = append(pids, bed.agent.byName("default", fmt.Sprint("p", i)).currentSandbox().PID())
	}
	go func() {
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				if c := condition(&p.Status, v1alpha1.PodConditionReset); c != nil && c.Status == corev1.ConditionTrue {
					mu.Lock()
					if done := waiting[c.Message]; done != nil {
						close(done)
						delete(waiting, c.Message)
					}
					mu.Unlock()
				}
			}
		}
	}()
	var seq atomic.Int64
	reset := func(pod int) {
		id, done := fmt.Sprint("r", seq.Add(1)), make(chan struct{})
		mu.Lock()
		waiting[id] = done
		mu.Unlock()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationResetID, id)
		if _, err := bed.client.CoreV1().Pods("default").Patch(b.Context(), fmt.Sprint("p", pod), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			b.Error(err)
			return
		}
		<-done
	}
	b.Run("one", func(b *testing.B) {
		defer runtimetest.MeasureCPU(b, pids...).Report()
		for b.Loop() {
			reset(0)
		}
	})
	b.Run("eight", func(b *testing.B) {
		defer runtimetest.MeasureCPU(b, pids...).Report()
		next := make(chan struct{})
		var wg sync.WaitGroup
		for i := range pods {
			wg.Go(func() {
				for range next {
					reset(i)
				}
			})
		}
		for b.Loop() {
			next <- struct{}{}
		}
		close(next)
		wg.Wait()
	})
}
