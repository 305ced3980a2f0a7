package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "system"

// The store needs create, list and delete of ConfigMaps only; the claim package's tests run it on a real API server.

func start(t *testing.T, c client.Client, limits Limits, clk clock.WithTicker) (*Store, func()) {
	t.Helper()
	s := New(c, namespace, limits, clk, slog.New(slog.DiscardHandler))
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return s, stop
}

func rec(i int, at time.Time) Record {
	code := int32(137)
	return Record{
		SandboxID: fmt.Sprintf("s%04d", i), Namespace: "ns", Status: "Failed", TerminatedAt: at.UTC(), ExitCode: &code,
		Metadata: map[string]string{"k": "a\nb<ü>"},
	}
}

func TestRecordsSurviveARestart(t *testing.T) {
	c := fake.NewFakeClient()
	now := time.Now()
	s, stop := start(t, c, Limits{FlushEvery: time.Millisecond}, clock.RealClock{})
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			if err := s.Append(t.Context(), rec(i, now.Add(time.Duration(i)))); err != nil {
				t.Error(err)
			}
			if err := s.Append(t.Context(), rec(i, now)); err != nil { // a second time is harmless
				t.Error(err)
			}
		})
	}
	all.Wait()
	stop()
	if err := s.Append(t.Context(), rec(999, now)); !errors.Is(err, ErrClosed) {
		t.Errorf("append after the end: %v", err)
	}
	again, _ := start(t, c, Limits{}, clock.RealClock{})
	if got := again.List(func(*Record) bool { return true }); len(got) != 300 {
		t.Errorf("%d records after the restart", len(got))
	}
	r, ok := again.Get("s0007")
	want := rec(7, now.Add(7))
	if !ok || !r.TerminatedAt.Equal(want.TerminatedAt) || r.Metadata["k"] != want.Metadata["k"] || *r.ExitCode != 137 {
		t.Errorf("got %+v, %v", r, ok)
	}
	var cms corev1.ConfigMapList
	if err := c.List(t.Context(), &cms); err != nil {
		t.Fatal(err)
	}
	for _, cm := range cms.Items {
		if n := len(cm.Data[dataKey]); n > maxBatchBytes {
			t.Errorf("configmap %s has %d bytes", cm.Name, n)
		}
	}
}

func TestSmallBatchesAreMerged(t *testing.T) {
	c := fake.NewFakeClient()
	s, stop := start(t, c, Limits{FlushEvery: time.Nanosecond}, clock.RealClock{})
	const n = 5 * mergeAt
	for i := range n {
		if err := s.Append(t.Context(), rec(i, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	var cms corev1.ConfigMapList
	if err := c.List(t.Context(), &cms); err != nil {
		t.Fatal(err)
	}
	if len(cms.Items) >= 2*mergeAt+2 {
		t.Errorf("%d batches hold %d records", len(cms.Items), n)
	}
	again, _ := start(t, c, Limits{}, clock.RealClock{})
	if got := again.List(func(*Record) bool { return true }); len(got) != n {
		t.Errorf("%d records after merging, want %d", len(got), n)
	}
}

func TestRecordsExpire(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	c := fake.NewFakeClient()
	s := New(c, namespace, Limits{TTL: time.Hour, Max: 3}, clk, slog.New(slog.DiscardHandler))
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	add := func(i int) {
		r := rec(i, clk.Now())
		s.pending[r.SandboxID] = &pendingRecord{record: &r, done: make(chan struct{})}
		s.flush(t.Context())
	}
	for i := range 5 {
		add(i)
		clk.Step(time.Second)
	}
	s.expire(t.Context())
	if _, ok := s.Get("s0001"); ok || len(s.byEnd) != 3 {
		t.Errorf("%d records are kept, want the 3 newest", len(s.byEnd))
	}
	clk.Step(time.Hour)
	if got := s.List(func(*Record) bool { return true }); len(got) != 0 {
		t.Errorf("expired records are listed: %v", got)
	}
	s.expire(t.Context())
	var cms corev1.ConfigMapList
	if err := c.List(t.Context(), &cms); err != nil || len(cms.Items) != 0 {
		t.Errorf("%d batches are left, %v", len(cms.Items), err)
	}
}

// TestLostAnswers makes every other write fail, half of them after they were made.
func TestLostAnswers(t *testing.T) {
	var n atomic.Int64
	base := fake.NewFakeClient()
	c := interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch n.Add(1) % 4 {
			case 1:
				return apierrors.NewServiceUnavailable("try later")
			case 3:
				if err := c.Create(ctx, o, opts...); err != nil {
					return err
				}
				return errors.New("connection reset by peer")
			}
			return c.Create(ctx, o, opts...)
		},
	})
	s, stop := start(t, c, Limits{FlushEvery: time.Millisecond}, clock.RealClock{})
	for i := range 4 {
		if err := s.Append(t.Context(), rec(i, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	again, _ := start(t, base, Limits{}, clock.RealClock{})
	if got := again.List(func(*Record) bool { return true }); len(got) != 4 {
		t.Errorf("%d records, want 4", len(got))
	}
}

func TestDamagedLinesHideNothing(t *testing.T) {
	good, _ := encode([]*Record{{SandboxID: "a", Namespace: "n", TerminatedAt: time.Now()}})
	c := fake.NewFakeClient(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "sandbox-records-x", Namespace: namespace, Labels: map[string]string{LabelRecords: "v1"}},
		Data:       map[string]string{dataKey: "{broken\n" + string(good) + "null\n"},
	})
	s, _ := start(t, c, Limits{}, clock.RealClock{})
	if _, ok := s.Get("a"); !ok {
		t.Error("the good record is lost")
	}
}

func FuzzDecode(f *testing.F) {
	good, _ := encode([]*Record{{SandboxID: "a", Namespace: "n"}, {SandboxID: "b", Namespace: "n", Metadata: map[string]string{"x": "\u2028\n"}}})
	for _, seed := range []string{string(good), "", "\n\n", "{", "null", `{"sandboxId":"a"}`, strings.Repeat("[", 1000), "\x00\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		records, _ := decode(data)
		again, err := encode(records)
		if err != nil {
			t.Fatal(err)
		}
		if round, damaged := decode(again); damaged != 0 || len(round) != len(records) {
			t.Fatalf("%d records became %d, %d damaged", len(records), len(round), damaged)
		}
	})
}
