package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"navix.sh/agentbox/internal/testplatform"
)

var chaosFor = flag.Duration("chaos", 20*time.Second, "how long TestChaos breaks things; `-chaos 1m` is the long run")

// TestChaos has clients create, use and kill sandboxes while processes inside sandboxes and the controller itself are
// killed at random. Afterwards everything must add up: no Pod was handed out twice, every sandbox is alive or on
// record, the pool is whole again, and nothing is left when the platform stops.
func TestChaos(t *testing.T) {
	const pods, clients = 6, 4
	p := testplatform.Start(t)
	abx(t, p, "scale", "envs", "default", "pools", "default-1c2gi", "--replicas", strconv.Itoa(pods))
	waitIdle(t, p, pods)

	c := &chaosClients{t: t}
	c.aim(p)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() { c.run(stop) })
	}
	end := time.Now().Add(*chaosFor)
	random := rand.New(rand.NewPCG(uint64(end.UnixNano()), 1))
	t.Logf("seed %d", end.UnixNano())
	for restarts := 0; time.Now().Before(end); {
		// A pause of random length between two blows is what chaos is; nothing is waited for here.
		time.Sleep(time.Duration(200+random.IntN(1500)) * time.Millisecond)
		if random.IntN(5) == 0 && restarts < 3 {
			restarts++
			p.Kill()
			p.Restart()
			c.aim(p)
			continue
		}
		if victims := sandboxProcesses(t, p); len(victims) > 0 {
			pid, _ := strconv.Atoi(strings.Fields(victims[random.IntN(len(victims))])[0])
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	close(stop)
	wg.Wait()
	if c.created.Load() == 0 {
		t.Fatal("no sandbox was created at all")
	}
	t.Logf("%d sandboxes were created, %d requests failed", c.created.Load(), c.failed.Load())

	live := map[string]string{} // Pod to sandbox
	for _, id := range c.ids() {
		var answer struct {
			Sandbox struct{ Status, PodName string }
		}
		if err := json.Unmarshal([]byte(native(t, p, "/v1/sandboxes/"+id)), &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Sandbox.Status != "Running" {
			continue
		}
		if other, twice := live[answer.Sandbox.PodName]; twice {
			t.Errorf("Pod %s holds %s and %s", answer.Sandbox.PodName, other, id)
		}
		live[answer.Sandbox.PodName] = id
	}
	for _, id := range live {
		// One that its own timeout ended meanwhile is no longer there; that it is on record was seen above.
		if err := c.call(http.MethodDelete, "/sandboxes/"+id, "", nil); err != nil && !strings.Contains(native(t, p, "/v1/sandboxes/"+id), `"terminatedAt"`) {
			t.Error(err)
		}
	}
	waitIdle(t, p, pods)
	p.Stop()
	if left := sandboxProcesses(t, p); len(left) > 0 {
		t.Errorf("left running:\n%s", strings.Join(left, "\n"))
	}
}

// chaosClients create sandboxes and end most of them; some they forget, as clients do.
type chaosClients struct {
	t               *testing.T
	target          atomic.Pointer[chaosTarget]
	created, failed atomic.Int64

	mu   sync.Mutex
	seen []string
}

type chaosTarget struct{ api, key string }

func (c *chaosClients) aim(p *testplatform.Platform) {
	c.target.Store(&chaosTarget{api: p.Client["E2B_API_URL"], key: p.Client["E2B_API_KEY"]})
}

func (c *chaosClients) ids() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.seen...)
}

func (c *chaosClients) run(stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		id, err := c.create()
		if err != nil {
			c.failed.Add(1)
			select { // the controller may be down: do not spin
			case <-stop:
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if n%7 != 6 {
			if err := c.call(http.MethodDelete, "/sandboxes/"+id, "", nil); err != nil {
				c.failed.Add(1)
			}
		}
	}
}

func (c *chaosClients) create() (string, error) {
	var sandbox struct{ SandboxID string }
	body := `{"templateID":"default","timeout":3,"metadata":{"agentbox.scitix.ai/startup-timeout":"5"}}`
	if err := c.call(http.MethodPost, "/v2/sandboxes", body, &sandbox); err != nil {
		return "", err
	}
	c.created.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, sandbox.SandboxID)
	return sandbox.SandboxID, nil
}

func (c *chaosClients) call(method, path, body string, into any) error {
	target := c.target.Load()
	req, err := http.NewRequest(method, target.api+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", target.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, raw)
	case into == nil:
		return nil
	}
	return json.Unmarshal(raw, into)
}
