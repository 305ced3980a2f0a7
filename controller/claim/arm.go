package claim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/pool"
)

const (
	// EnvdPort is where envd listens in every sandbox.
	EnvdPort        = 49983
	headerInitToken = "X-Init-Token"
)

// envdInit is the body of envd's POST /init. It names no default user: envd takes `user` where the image has that
// account and the sandbox may change to it, and its own otherwise.
type envdInit struct {
	SandboxID      string            `json:"sandboxId"`
	AccessToken    string            `json:"accessToken,omitempty"`
	EnvVars        map[string]string `json:"envVars"`
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
	Timestamp      time.Time         `json:"timestamp"`
	LifecycleID    string            `json:"lifecycleID,omitempty"`
}

// newEnvdClient dials Pods by address. It keeps no connection: the process behind one may be replaced at any time.
func newEnvdClient(dial DialFunc) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				host, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				n, err := strconv.Atoi(port)
				if err != nil {
					return nil, err
				}
				return dial(ctx, host, n)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// initEnvd arms envd. A Pod of the pool's own image answers at the first try; after an image swap envd may need a
// moment to listen, so a refused connection and a 5xx are tried again until ctx ends.
func initEnvd(ctx context.Context, c *http.Client, podIP, token string, body *envdInit) error {
	if body.EnvVars == nil {
		body.EnvVars = map[string]string{} // envd replaces its variables by these
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	url := envdURL(podIP, "/init")
	backoff := 2 * time.Millisecond
	for {
		status, err := postInit(ctx, c, url, token, data)
		switch {
		case err == nil && (status == http.StatusNoContent || status == http.StatusOK):
			return nil
		case err == nil && status >= 400 && status < 500:
			return &Error{
				Code:    CodeStartFailed,
				Message: fmt.Sprintf("envd refused its initialisation with status %d", status),
				Hint:    "check that the image's envd belongs to this platform and that the sandbox was not initialised by somebody else",
			}
		case err == nil:
			err = fmt.Errorf("envd answered status %d", status)
		}
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		backoff = min(2*backoff, 250*time.Millisecond)
	}
}

func postInit(ctx context.Context, c *http.Client, url, token string, data []byte) (status int, err error) {
	attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(attempt, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set(headerInitToken, token)
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
	return response.StatusCode, nil
}

// envdState is what envd's GET /state answers.
type envdState struct {
	Armed       bool   `json:"armed"`
	EverUsed    bool   `json:"everUsed"`
	LifecycleID string `json:"lifecycleId"`
}

func stateOfEnvd(ctx context.Context, c *http.Client, podIP, token string) (s envdState, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, envdURL(podIP, "/state"), nil)
	if err != nil {
		return s, err
	}
	request.Header.Set(headerInitToken, token)
	response, err := c.Do(request)
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return s, fmt.Errorf("envd answered status %d", response.StatusCode)
	}
	err = json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(&s)
	return s, err
}

func envdURL(podIP, path string) string {
	return "http://" + net.JoinHostPort(podIP, strconv.Itoa(EnvdPort)) + path
}

// initToken is what proves to a Pod's envd that the platform is talking. The pool's Secret is read once.
func (m *Manager) initToken(ctx context.Context, pl *trackedPool) (string, error) {
	if pl == nil {
		return "", errPodGone
	}
	m.mu.Lock()
	token, key, uid := pl.initToken, pl.key, pl.uid
	m.mu.Unlock()
	if token != "" {
		return token, nil
	}
	var secret corev1.Secret
	name := client.ObjectKey{Namespace: key.Namespace, Name: pool.InitSecretName(key.Name)}
	if err := m.client.Get(ctx, name, &secret); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return "", nil // a Pod that was not made by the pool reconciler may do without
		}
		return "", fmt.Errorf("init token of pool %s: %w", key, err)
	}
	token = string(secret.Data[pool.InitSecretKey])
	m.mu.Lock()
	defer m.mu.Unlock()
	if pl.uid == uid {
		pl.initToken = token
	}
	return token, nil
}
