package claim

import (
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The node of these benchmarks starts nothing, so they measure the claim path and the API server alone.

func BenchmarkCreate(b *testing.B) {
	ns := testBed.env(b, 8)
	m, _ := testBed.manager(b)
	latencies := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		sb := mustCreate(b, m, Request{Owner: owner(ns), Env: "env", Secure: true, Timeout: time.Hour})
		latencies = append(latencies, time.Since(began))
		b.StopTimer()
		if err := m.Kill(b.Context(), sb.ID, ReasonKilled); err != nil {
			b.Fatal(describeError(err))
		}
		b.StartTimer()
	}
	report(b, latencies)
}

func BenchmarkCreateKillCycles(b *testing.B) {
	ns := testBed.env(b, 16)
	m, _ := testBed.manager(b)
	b.SetParallelism(4)
	b.ResetTimer()
	before := cpuTime()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			sb, err := m.Create(b.Context(), Request{Owner: owner(ns), Env: "env", Secure: true})
			if err == nil {
				err = m.Kill(b.Context(), sb.ID, ReasonKilled)
			}
			if err != nil {
				b.Error(describeError(err))
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	// The whole process: claim path, reconcilers, API server and the test's node. It says more on a busy machine.
	b.ReportMetric(float64((cpuTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/cycle")
}

func BenchmarkFiftyAtOnce(b *testing.B) {
	ns := testBed.env(b, 50)
	m, _ := testBed.manager(b)
	for b.Loop() {
		ids := make([]string, 50)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() { ids[i] = mustCreate(b, m, Request{Owner: owner(ns), Env: "env", Secure: true}).ID })
		}
		all.Wait()
		b.StopTimer()
		for _, id := range ids {
			if err := m.Kill(b.Context(), id, ReasonKilled); err != nil {
				b.Fatal(describeError(err))
			}
		}
		testBed.awaitIdle(b, ns, 50)
		b.StartTimer()
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report(b *testing.B, d []time.Duration) {
	if len(d) == 0 {
		return
	}
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(d[len(d)*99/100].Microseconds())/1000, "p99-ms")
}
