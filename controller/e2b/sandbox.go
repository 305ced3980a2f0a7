package e2b

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

// clientID is the constant that E2B answers in a field that is required and deprecated.
const clientID = "6532622b"

// never stands for the end of a sandbox that has none: the field is required.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Floors of E2B's schema, shown for a sandbox without limits of its own.
const (
	minCPUs     = 1
	minMemoryMB = 128
)

// sandboxBody is E2B's Sandbox, the answer of create and connect.
type sandboxBody struct {
	TemplateID         string  `json:"templateID"`
	SandboxID          string  `json:"sandboxID"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	Alias              string  `json:"alias,omitempty"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

// listedBody is E2B's ListedSandbox.
type listedBody struct {
	TemplateID  string            `json:"templateID"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	EnvdVersion string            `json:"envdVersion"`
	Alias       string            `json:"alias,omitempty"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int64             `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	State       string            `json:"state"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// detailBody is E2B's SandboxDetail.
type detailBody struct {
	listedBody
	EnvdAccessToken string        `json:"envdAccessToken,omitempty"`
	Domain          *string       `json:"domain"`
	Network         networkBody   `json:"network"`
	Lifecycle       lifecycleBody `json:"lifecycle"`
}

type networkBody struct {
	AllowPublicTraffic bool `json:"allowPublicTraffic"`
}

type lifecycleBody struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

// stateRunning is the only state that a live sandbox has here: there is no pause.
const stateRunning = "running"

func (h *Handler) sandboxBody(r *http.Request, sb claim.Sandbox) sandboxBody {
	body := sandboxBody{
		TemplateID:      templateIDOf(sb),
		SandboxID:       sb.ID,
		ClientID:        clientID,
		EnvdVersion:     EnvdVersion,
		Alias:           sb.Env,
		EnvdAccessToken: sb.AccessToken,
		Domain:          h.domainFor(r),
	}
	if sb.TrafficToken != "" {
		body.TrafficAccessToken = &sb.TrafficToken
	}
	return body
}

func listed(sb claim.Sandbox) listedBody {
	return listedBody{
		TemplateID:  templateIDOf(sb),
		SandboxID:   sb.ID,
		ClientID:    clientID,
		EnvdVersion: EnvdVersion,
		Alias:       sb.Env,
		StartedAt:   startOf(sb).UTC(),
		EndAt:       endOf(sb),
		CPUCount:    cpuCount(sb.CPU),
		MemoryMB:    memoryMB(sb.Memory),
		State:       stateRunning,
		Metadata:    sb.Metadata,
	}
}

func (h *Handler) detail(r *http.Request, sb claim.Sandbox) detailBody {
	return detailBody{
		listedBody:      listed(sb),
		EnvdAccessToken: sb.AccessToken,
		Domain:          h.domainFor(r),
		Network:         networkBody{AllowPublicTraffic: sb.TrafficToken == ""},
		Lifecycle:       lifecycleBody{OnTimeout: "kill"},
	}
}

// domainFor is the domain that this client reaches sandboxes under, or nil for the one it is configured with. A
// request to api.<domain>:port tells the port that the client sees.
func (h *Handler) domainFor(r *http.Request) *string {
	if h.domain == "" {
		return nil
	}
	domain := h.domain
	if own, ok := strings.CutPrefix(strings.ToLower(r.Host), "api."); ok && withoutPort(own) == withoutPort(h.domain) {
		domain = own
	}
	return &domain
}

// templateIDOf is the environment, or the pool where a create named one.
func templateIDOf(sb claim.Sandbox) string {
	if sb.Env != "" {
		return sb.Env
	}
	return sb.Pool
}

func startOf(sb claim.Sandbox) time.Time {
	if sb.StartedAt.IsZero() {
		return sb.ClaimedAt
	}
	return sb.StartedAt
}

func endOf(sb claim.Sandbox) time.Time {
	if sb.EndAt.IsZero() {
		return never
	}
	return sb.EndAt.UTC()
}

func cpuCount(quantity string) int64 {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return minCPUs
	}
	return max(minCPUs, q.Value()) // Value rounds up
}

func memoryMB(quantity string) int64 {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return minMemoryMB
	}
	return max(minMemoryMB, q.Value()>>20)
}

// object is a sandbox as package access knows it.
func object(sb claim.Sandbox) access.Object {
	return access.Object{Kind: access.KindSandbox, Namespace: sb.Owner.Namespace, Name: sb.ID,
		Team: sb.Owner.Team, User: sb.Owner.User}
}

// sandbox returns the live sandbox that a route names, if the caller may do this to it. A foreign one and a missing
// one read the same.
func (h *Handler) sandbox(ctx context.Context, c *call, v access.Verb) (claim.Sandbox, error) {
	id, err := sandboxID(c.params["sandboxID"])
	if err != nil {
		return claim.Sandbox{}, err
	}
	sb, err := h.claims.Get(ctx, id, false)
	if err != nil {
		return claim.Sandbox{}, missing(err, id)
	}
	if err := c.authorize(v, object(sb)); err != nil {
		return claim.Sandbox{}, missing(err, id)
	}
	return sb, nil
}

// missing words the absence of a sandbox as E2B does; other errors pass.
func missing(err error, id string) error {
	var failed *claim.Error
	if errors.Is(err, access.ErrNotFound) || (errors.As(err, &failed) && failed.Code == claim.CodeNotFound) {
		return sandboxNotFound(id)
	}
	return err
}

// sandboxID reads an id as a client sends it; what follows a dash was the client id of old SDKs.
func sandboxID(text string) (string, error) {
	id, _, _ := strings.Cut(text, "-")
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "", badSandboxID(text)
		}
	}
	if id == "" || len(id) > maxName {
		return "", badSandboxID(text)
	}
	return id, nil
}

func badSandboxID(text string) *apiError {
	return badRequest("Invalid sandbox ID %.80q: want lower-case letters and digits", text)
}
