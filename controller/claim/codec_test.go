package claim

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	last := ""
	for i := range 1000 {
		id := newID(time.UnixMilli(1_700_000_000_000 + int64(i)))
		if len(id) != 26 || id[0] < 'a' || id[0] > 'z' || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			t.Fatalf("id %q", id)
		}
		if seen[id] || id <= last {
			t.Fatalf("id %q after %q", id, last)
		}
		seen[id], last = true, id
	}
	if a, b := newID(time.UnixMilli(1)), newID(time.UnixMilli(1)); a == b || a[:10] != b[:10] {
		t.Errorf("two ids of one moment: %s, %s", a, b)
	}
}

func TestSeal(t *testing.T) {
	s, err := newSealer(bytes.Repeat([]byte{7}, masterKeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	want := secrets{Access: newToken(), Traffic: newToken()}
	sealed := s.seal("a", want)
	if strings.Contains(sealed, want.Access) || sealed == s.seal("a", want) {
		t.Error("the tokens are readable, or sealed the same way twice")
	}
	if got, err := s.open("a", sealed); err != nil || got != want {
		t.Errorf("opened %+v, %v", got, err)
	}
	other, _ := newSealer(bytes.Repeat([]byte{8}, masterKeyBytes))
	for name, open := range map[string]func() (secrets, error){
		"another sandbox": func() (secrets, error) { return s.open("b", sealed) },
		"another key":     func() (secrets, error) { return other.open("a", sealed) },
		"cut":             func() (secrets, error) { return s.open("a", sealed[:10]) },
		"empty":           func() (secrets, error) { return s.open("a", "") },
		"not base64":      func() (secrets, error) { return s.open("a", "!") },
	} {
		if got, err := open(); err == nil {
			t.Errorf("%s: opened %+v", name, got)
		}
	}
	if _, err := newSealer(nil); err == nil {
		t.Error("a sealer without a key")
	}
}

func poolPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: map[string]string{
			v1alpha1.LabelPool: "env-1c2gi", v1alpha1.LabelEnv: "env", v1alpha1.LabelScalingGroup: "1c2gi",
			v1alpha1.LabelTeam: "pool-team", v1alpha1.LabelPhase: "idle",
		}, Annotations: map[string]string{"keep": "me", v1alpha1.AnnotationScaleDownProtected: "x"}},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "sandbox", Image: "a:1"}, {Name: "side", Image: "s:1"}}},
	}
}

func TestClaimRoundTrip(t *testing.T) {
	pod := poolPod()
	before := pod.DeepCopy()
	now := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	code := int32(-1)
	want := Sandbox{
		ID: "i1", Owner: Owner{Namespace: "ns", Team: "red", User: "ann"}, Env: "env", Pool: "env-1c2gi", Group: "1c2gi", Pod: "p", Node: "n",
		Status: StatusStarting, ClaimedAt: now, LastActive: now, EndAt: now.Add(time.Hour), Timeout: time.Hour, TimeoutMode: TimeoutAbsolute,
		Metadata: map[string]string{"k": "ü\n\"<"}, Images: map[string]string{"sandbox": "b:2", "side": "s:1"},
	}
	if err := writeClaim(pod, &want, time.Minute, "sealed", true); err != nil {
		t.Fatal(err)
	}
	same := func(what string, got, want Sandbox) {
		t.Helper()
		if !equalJSON(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
		}
	}
	same("claimed", readClaim(pod), want)
	if pod.Spec.Containers[0].Image != "b:2" || pod.Annotations[v1alpha1.AnnotationScaleDownProtected] != "" {
		t.Errorf("Pod: %+v", pod)
	}
	want.Status, want.Armed, want.StartedAt, want.ContainerID = StatusRunning, true, now.Add(time.Second), "c1"
	writeArmed(pod, &want)
	same("armed", readClaim(pod), want)
	want.Status, want.TerminatedAt, want.FailureReason, want.FailureMessage, want.ExitCode = StatusFailed, now.Add(time.Minute), "OOMKilled", "m", &code
	if err := writeStop(pod, &want); err != nil {
		t.Fatal(err)
	}
	stopped := readClaim(pod)
	if pod.Annotations[annotationSecrets] != "" || pod.Annotations[v1alpha1.AnnotationStopReason] != "Failed" {
		t.Errorf("stopped: %v", pod.Annotations)
	}
	want.Status = StatusStopping
	same("stopped", stopped, want)
	writeIdle(pod)
	pod.Spec.Containers[0].Image = "a:1"
	delete(before.Annotations, v1alpha1.AnnotationScaleDownProtected)
	before.Finalizers = []string{}
	if !equalJSON(pod, before) {
		t.Errorf("idle again:\n got %+v\nwant %+v", pod.ObjectMeta, before.ObjectMeta)
	}
}

// FuzzReadClaim reads whatever a person may have put on a Pod.
func FuzzReadClaim(f *testing.F) {
	f.Add("i1", "2026-01-02T03:04:05Z", "60", "absolute", `{"a":"b"}`, `{"sandbox":"x"}`, "137", "running")
	f.Add("", "", "-1", "", "{", "[]", "99999999999", "unknown")
	f.Add("x", "0001-01-01T00:00:00Z", "9223372036854775807", "idle", `null`, `{}`, "0x1", "stopping")
	f.Fuzz(func(t *testing.T, id, at, seconds, mode, metadata, images, exit, phase string) {
		pod := poolPod()
		pod.Labels[v1alpha1.LabelPhase] = phase
		for k, v := range map[string]string{
			v1alpha1.AnnotationSandboxID: id, v1alpha1.AnnotationClaimedAt: at, v1alpha1.AnnotationLastActive: at, annotationEndAt: at,
			v1alpha1.AnnotationIdleTimeout: seconds, v1alpha1.AnnotationTimeoutMode: mode, v1alpha1.AnnotationMetadata: metadata,
			v1alpha1.AnnotationRunningImages: images, v1alpha1.AnnotationExitCode: exit,
		} {
			pod.Annotations[k] = v
		}
		sb := readClaim(pod)
		if sb.Timeout < 0 || sb.TimeoutMode != TimeoutIdle && sb.TimeoutMode != TimeoutAbsolute || len(sb.Images) == 0 {
			t.Errorf("read %+v", sb)
		}
		if err := writeStop(pod, &sb); err != nil {
			t.Error(err)
		}
		writeIdle(pod)
	})
}

func TestClipMessage(t *testing.T) {
	long := clipMessage(strings.Repeat("ü", 2000) + "\xff")
	if !utf8.ValidString(long) || len(long) > maxFailureMessageBytes+len("…") {
		t.Errorf("%d bytes, valid %v", len(long), utf8.ValidString(long))
	}
}

func TestBudgets(t *testing.T) {
	for left, start := range map[time.Duration]time.Duration{
		2 * time.Minute: 30 * time.Second, time.Minute: 15 * time.Second, 10 * time.Minute: 30 * time.Second,
		4 * time.Second: 2 * time.Second, time.Second: 500 * time.Millisecond,
	} {
		if p, s := budgets(left); s != start || p+s != left {
			t.Errorf("%s is split into %s and %s", left, p, s)
		}
	}
}

func TestSameImage(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"ubuntu", "docker.io/library/ubuntu:latest", true}, {"ubuntu:24.04", "index.docker.io/library/ubuntu:24.04", true},
		{"ubuntu:24.04", "ubuntu:22.04", false}, {"a.example/x:1", "b.example/x:1", false}, {"", "", true}, {"", "x", false},
		{"not a reference", "not a reference", true},
	} {
		if sameImage(tt.a, tt.b) != tt.same {
			t.Errorf("%q and %q", tt.a, tt.b)
		}
	}
}

// TestTimers steps a clock: nothing is early, moved entries fire at their new time, removed ones never.
func TestTimers(t *testing.T) {
	clk := testclock.NewFakeClock(time.Unix(0, 0))
	timers := newTimers(clk)
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	boxes := map[*sandbox]string{}
	add := func(name string, s int) *sandbox {
		sb := newSandbox(context.Background(), nil, Sandbox{ID: name})
		boxes[sb] = name
		timers.set(sb, at(s))
		return sb
	}
	add("third", 30)
	add("first", 10)
	moved, removed := add("second", 5), add("removed", 15)
	timers.set(moved, at(20))
	timers.set(removed, time.Time{})

	fired := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := true
		timers.run(ctx, func(sb *sandbox) time.Time {
			if boxes[sb] == "first" && again { // active meanwhile
				again = false
				return at(25)
			}
			fired <- boxes[sb]
			return time.Time{}
		})
	}()
	for _, step := range []struct {
		at   int
		want string
	}{{20, "second"}, {25, "first"}, {30, "third"}} {
		await(t, t.Context(), "the loop to wait", clk.HasWaiters)
		select {
		case early := <-fired:
			t.Errorf("%s fired before second %d", early, step.at)
		default:
		}
		clk.SetTime(at(step.at))
		if got := <-fired; got != step.want {
			t.Errorf("%s fired at second %d, want %s", got, step.at, step.want)
		}
	}
	cancel()
	<-done
}
