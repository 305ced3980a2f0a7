package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/agentbox/internal/testplatform"
)

// The published figures of the platform, measured from outside over HTTP, as a client sees them. Each stands beside a
// baseline taken in the same run: one Kubernetes write to the same API, which is what a claim waits for.
// Rerun with `make bench`.

const sustainedFor = 60 * time.Second

// BenchmarkCreate claims and kills one sandbox at a time on a warm pool, same image.
func BenchmarkCreate(b *testing.B) {
	p := benchPlatform(b, 8)
	var create, first, kill durations
	write := newKubeWriter(b, p)
	for b.Loop() {
		write.once(b)
		start := time.Now()
		sb := createSandbox(b, p)
		create.add(time.Since(start))
		runEcho(b, p, sb)
		first.add(time.Since(start))
		start = time.Now()
		killSandbox(b, p, sb.ID)
		kill.add(time.Since(start))
		waitIdle(b, p, 4)
	}
	b.ReportMetric(create.ms(0.50), "create-p50-ms")
	b.ReportMetric(create.ms(0.99), "create-p99-ms")
	b.ReportMetric(first.ms(0.50), "first-output-p50-ms")
	b.ReportMetric(kill.ms(0.50), "kill-p50-ms")
	b.ReportMetric(write.took.ms(0.50), "kube-write-p50-ms")
	b.ReportMetric(create.ms(0.50)/write.took.ms(0.50), "create/kube-write")
}

// BenchmarkBurst creates fifty sandboxes at once on a pool that holds them.
func BenchmarkBurst(b *testing.B) {
	const n = 50
	p := benchPlatform(b, n)
	var whole durations
	failed := 0
	for b.Loop() {
		ids := make([]string, n)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range ids {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if sb, err := tryCreate(p); err == nil {
					ids[i] = sb.ID
				}
			}()
		}
		wg.Wait()
		whole.add(time.Since(start))
		for _, id := range ids {
			if id == "" {
				failed++
				continue
			}
			killSandbox(b, p, id)
		}
		waitIdle(b, p, n)
	}
	b.ReportMetric(whole.ms(0.50), "all-50-ms")
	b.ReportMetric(float64(failed), "failed")
}

// BenchmarkSustained creates and kills for a minute with recycling, eight clients at a time. Nobody uses the sandboxes.
func BenchmarkSustained(b *testing.B) {
	sustain(b, func(*testplatform.Platform, benchSandbox) error { return nil })
}

// BenchmarkSustainedUse does the same with a command in every sandbox, so that every Pod is reset.
func BenchmarkSustainedUse(b *testing.B) {
	sustain(b, func(p *testplatform.Platform, sb benchSandbox) error { return tryShell(p, sb, "echo hello", "hello\n") })
}

func sustain(b *testing.B, use func(*testplatform.Platform, benchSandbox) error) {
	p := benchPlatform(b, 24)
	var cycles, failed atomic.Int64
	var took durations
	var mu sync.Mutex
	for b.Loop() {
		end := time.Now().Add(sustainedFor)
		var wg sync.WaitGroup
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for time.Now().Before(end) {
					start := time.Now()
					sb, err := tryCreate(p)
					if err != nil {
						failed.Add(1)
						continue
					}
					mu.Lock()
					took.add(time.Since(start))
					mu.Unlock()
					if err := use(p, sb); err != nil {
						failed.Add(1)
					}
					killSandbox(b, p, sb.ID)
					cycles.Add(1)
				}
			}()
		}
		wg.Wait()
	}
	b.ReportMetric(float64(cycles.Load())/sustainedFor.Seconds()/float64(b.N), "cycles/s")
	b.ReportMetric(took.ms(0.99), "create-p99-ms")
	b.ReportMetric(float64(failed.Load()), "failed")
}

// BenchmarkIdle weighs an idle platform: the controller, and one idle sandbox (proportional share of its processes).
func BenchmarkIdle(b *testing.B) {
	const n = 8
	var controller, sandbox float64
	for b.Loop() {
		p := benchPlatform(b, n)
		controller = procStatus(b, p.Pid(), "status", "VmRSS:")
		sum := 0.0
		tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
		for _, table := range tables {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(table)))
			raw, err := os.ReadFile(table)
			if err == nil && pid != p.Pid() && bytes.Contains(raw, []byte(p.DataDir+"/")) {
				sum += procStatus(b, pid, "smaps_rollup", "Pss:")
			}
		}
		sandbox = sum / n
		p.Stop()
	}
	b.ReportMetric(controller/1024, "controller-MB")
	b.ReportMetric(sandbox/1024, "idle-sandbox-MB")
}

// BenchmarkStart starts a platform on a fresh directory, and again on the same one.
func BenchmarkStart(b *testing.B) {
	var fresh, again durations
	for b.Loop() {
		testplatform.Build(b)
		start := time.Now()
		p := testplatform.Start(b)
		waitIdle(b, p, 1)
		fresh.add(time.Since(start))
		p.Stop()
		start = time.Now()
		p.Restart()
		waitIdle(b, p, 1)
		again.add(time.Since(start))
		p.Stop()
	}
	b.ReportMetric(fresh.ms(0.50), "fresh-to-idle-ms")
	b.ReportMetric(again.ms(0.50), "restart-to-idle-ms")
}

// durations is a sample.
type durations struct{ all []time.Duration }

func (d *durations) add(v time.Duration) { d.all = append(d.all, v) }

// ms is the quantile q in milliseconds.
func (d *durations) ms(q float64) float64 {
	if len(d.all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d.all))
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) / float64(time.Millisecond)
}

func benchPlatform(b *testing.B, pods int) *testplatform.Platform {
	b.Helper()
	p := testplatform.Start(b)
	if out, err := p.Command("abx", "scale", "envs", "default", "pools", "default-1c2gi", "--replicas", strconv.Itoa(pods)).CombinedOutput(); err != nil {
		b.Fatalf("scale: %v\n%s", err, out)
	}
	waitIdle(b, p, pods)
	return p
}

type benchSandbox struct{ ID, Token string }

func tryCreate(p *testplatform.Platform) (benchSandbox, error) {
	req, err := http.NewRequest(http.MethodPost, p.Client["E2B_API_URL"]+"/v2/sandboxes", strings.NewReader(`{"templateID":"default"}`))
	if err != nil {
		return benchSandbox{}, err
	}
	req.Header.Set("X-API-Key", p.Client["E2B_API_KEY"])
	req.Header.Set("Content-Type", "application/json")
	resp, err := benchClient.Do(req)
	if err != nil {
		return benchSandbox{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return benchSandbox{}, err
	}
	if resp.StatusCode != http.StatusCreated {
		return benchSandbox{}, fmt.Errorf("create answered %d: %s", resp.StatusCode, raw)
	}
	var sb struct{ SandboxID, EnvdAccessToken string }
	err = json.Unmarshal(raw, &sb)
	return benchSandbox{sb.SandboxID, sb.EnvdAccessToken}, err
}

// benchClient keeps as many connections as the benchmarks have clients.
var benchClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func createSandbox(b *testing.B, p *testplatform.Platform) benchSandbox {
	b.Helper()
	sb, err := tryCreate(p)
	if err != nil {
		b.Fatal(err)
	}
	return sb
}

func killSandbox(b *testing.B, p *testplatform.Platform, id string) {
	req, err := http.NewRequest(http.MethodDelete, p.Client["E2B_API_URL"]+"/sandboxes/"+id, nil)
	if err != nil {
		b.Error(err)
		return
	}
	req.Header.Set("X-API-Key", p.Client["E2B_API_KEY"])
	resp, err := benchClient.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		b.Errorf("kill answered %d", resp.StatusCode)
	}
}

func runEcho(b *testing.B, p *testplatform.Platform, sb benchSandbox) {
	b.Helper()
	runShell(b, p, sb, "echo hello", "hello\n")
}

func runShell(b testing.TB, p *testplatform.Platform, sb benchSandbox, script, output string) {
	b.Helper()
	if err := tryShell(p, sb, script, output); err != nil {
		b.Fatal(err)
	}
}

// tryShell runs a script as the SDK does (Connect protocol, JSON) and returns at its first output, which is output.
func tryShell(p *testplatform.Platform, sb benchSandbox, script, output string) error {
	message, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", script}}, "stdin": false})
	if err != nil {
		return err
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	req, err := http.NewRequest(http.MethodPost, p.Endpoint()+"/process.Process/Start", bytes.NewReader(append(body, message...)))
	if err != nil {
		return err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1",
		"E2b-Sandbox-Id": sb.ID, "E2b-Sandbox-Port": "49983", "X-Access-Token": sb.Token,
	} {
		req.Header.Set(k, v)
	}
	resp, err := benchClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	want := base64.StdEncoding.EncodeToString([]byte(output))
	var header [5]byte
	for {
		if _, err := io.ReadFull(resp.Body, header[:]); err != nil {
			return fmt.Errorf("the command ended without the output %q: %w (status %d)", output, err, resp.StatusCode)
		}
		frame := make([]byte, binary.BigEndian.Uint32(header[1:]))
		if _, err := io.ReadFull(resp.Body, frame); err != nil {
			return err
		}
		if bytes.Contains(frame, []byte(want)) {
			return nil
		}
	}
}

// kubeWriter times single writes to the Kubernetes API underneath.
type kubeWriter struct {
	client kubernetes.Interface
	object *corev1.ConfigMap
	took   durations
}

func newKubeWriter(b *testing.B, p *testplatform.Platform) *kubeWriter {
	b.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.Client["KUBECONFIG"])
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	object, err := client.CoreV1().ConfigMaps("default").Create(context.Background(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return &kubeWriter{client: client, object: object}
}

func (w *kubeWriter) once(b *testing.B) {
	b.Helper()
	w.object.Data = map[string]string{"n": strconv.Itoa(len(w.took.all))}
	start := time.Now()
	updated, err := w.client.CoreV1().ConfigMaps("default").Update(context.Background(), w.object, metav1.UpdateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	w.took.add(time.Since(start))
	w.object = updated
}

// procStatus reads one value in kB from a file of /proc/<pid>.
func procStatus(b *testing.B, pid int, file, field string) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0 // the process has ended meanwhile
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			n, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return n
		}
	}
	return 0
}
