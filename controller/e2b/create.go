package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

// Default lives of a sandbox, for a create that names none from an environment that has no default.
const (
	defaultTimeoutV1 = 15 * time.Second
	defaultTimeoutV2 = 300 * time.Second
)

// defaultStartupTimeout bounds a create where neither it nor its environment says how long it may wait. The SDKs give
// up after 60 s: an answer that comes later is one that nobody reads.
const defaultStartupTimeout = 55 * time.Second

// createBody is the body of both versions of create.
type createBody struct {
	TemplateID          *string           `json:"templateID"`
	Timeout             *int64            `json:"timeout"`
	Secure              *bool             `json:"secure"`
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             *createNetwork    `json:"network"`
	AutoPause           *bool             `json:"autoPause"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory"`
	AutoResume          *createAutoResume `json:"autoResume"`
	IAM                 *createIAM        `json:"iam"`
	MCP                 json.RawMessage   `json:"mcp"`
	VolumeMounts        []json.RawMessage `json:"volumeMounts"`
}

type createNetwork struct {
	AllowPublicTraffic *bool                        `json:"allowPublicTraffic"`
	AllowOut           []string                     `json:"allowOut"`
	DenyOut            []string                     `json:"denyOut"`
	EgressProxy        json.RawMessage              `json:"egressProxy"`
	MaskRequestHost    *string                      `json:"maskRequestHost"`
	HTTPSPorts         []int64                      `json:"httpsPorts"`
	Rules              map[string][]json.RawMessage `json:"rules"`
}

type createAutoResume struct {
	Enabled *bool `json:"enabled"`
}

type createIAM struct {
	Tokens map[string]json.RawMessage `json:"tokens"`
}

func (h *Handler) createV1(ctx context.Context, c *call) (reply, error) {
	return h.create(ctx, c, defaultTimeoutV1)
}

func (h *Handler) createV2(ctx context.Context, c *call) (reply, error) {
	return h.create(ctx, c, defaultTimeoutV2)
}

func (h *Handler) create(ctx context.Context, c *call, fallback time.Duration) (reply, error) {
	var body createBody
	if err := c.decode(&body, false); err != nil {
		return reply{}, err
	}
	owner := claim.Owner{Namespace: c.caller.Namespace, Team: c.caller.Team, User: c.caller.User}
	err := c.authorize(access.VerbCreate, access.Object{Kind: access.KindSandbox, Namespace: owner.Namespace, Team: owner.Team, User: owner.User})
	if err != nil {
		return reply{}, err
	}
	if err := body.unsupported(); err != nil {
		return reply{}, err
	}
	if body.TemplateID == nil || strings.TrimSpace(*body.TemplateID) == "" {
		return reply{}, badRequest("templateID is required: name an environment (%s)", referenceGrammar)
	}
	ref, err := ParseReference(*body.TemplateID)
	if err != nil {
		return reply{}, badRequest("%v", err)
	}
	wishes, metadata, err := splitMetadata(body.Metadata)
	if err != nil {
		return reply{}, err
	}
	if err := checkEnvVars(body.EnvVars); err != nil {
		return reply{}, err
	}
	request := claim.Request{
		Owner:          owner,
		ScalingGroup:   wishes.ScalingGroup,
		Image:          ref.Image,
		Metadata:       metadata,
		EnvVars:        body.EnvVars,
		StartupTimeout: wishes.StartupTimeout, DefaultStartupTimeout: defaultStartupTimeout,
		TimeoutMode: wishes.TimeoutMode,
		// A sandbox without a token would be open to everybody who knows its id, and every SDK sends the token it is
		// given: `secure: false` asks for less than it gets.
		Secure:         true,
		PrivateTraffic: body.Network != nil && body.Network.AllowPublicTraffic != nil && !*body.Network.AllowPublicTraffic,
	}
	if wishes.Image != "" {
		request.Image = wishes.Image
	}
	from, err := h.resolve(ctx, c, ref)
	if err != nil {
		return reply{}, err
	}
	request.Env, request.Pool = from.Env, from.Pool
	if err := body.life(&request, from.DefaultTimeout, fallback); err != nil {
		return reply{}, err
	}
	sb, err := h.claims.Create(ctx, request)
	if err != nil {
		return reply{}, asCreateError(err)
	}
	return reply{Status: http.StatusCreated, Body: h.sandboxBody(c.Request, sb)}, nil
}

// life sets the timeout of a request. An absent one leaves the environment's default, or else E2B's.
func (b *createBody) life(request *claim.Request, hasDefault bool, fallback time.Duration) (err error) {
	switch {
	case b.Timeout == nil && hasDefault:
		return nil
	case b.Timeout == nil:
		request.Timeout = fallback
		return nil
	case *b.Timeout == -1:
		idle, ok := b.Metadata[idleTimeoutKey]
		if !ok {
			return badRequest("timeout -1 means no hard lifetime and needs metadata %q (seconds without activity until the sandbox ends)", idleTimeoutKey)
		}
		if request.TimeoutMode == claim.TimeoutAbsolute {
			return badRequest("timeout -1 with metadata %q counts activity, but metadata %stimeout-mode says %q: drop one of them",
				idleTimeoutKey, reservedPrefix, claim.TimeoutAbsolute)
		}
		request.TimeoutMode = claim.TimeoutIdle
		request.Timeout, err = secondsText(idleTimeoutKey, idle)
		return err
	default:
		request.Timeout, err = seconds("Timeout", *b.Timeout)
		return err
	}
}

// unsupported refuses what would otherwise be dropped in silence. Values that ask for nothing pass: SDKs send some of
// them always.
func (b *createBody) unsupported() error {
	switch {
	case isTrue(b.AutoPause):
		return lacking("autoPause", "sandboxes cannot be paused; leave it out, and keep results outside the sandbox")
	case b.AutoPauseMemory != nil && !*b.AutoPauseMemory:
		return badRequest("autoPauseMemory is false without autoPause: it says how to pause, and nothing is paused")
	case b.AutoResume != nil && isTrue(b.AutoResume.Enabled):
		return lacking("autoResume", "sandboxes cannot be paused or resumed; leave it out")
	case b.AllowInternetAccess != nil && !*b.AllowInternetAccess:
		return lacking("allow_internet_access false", "there is no egress control yet; leave it out, or run where the network is closed")
	case isSet(b.MCP):
		return lacking("mcp", "there is no MCP gateway in the sandbox; start your own server and use its port")
	case b.IAM != nil && len(b.IAM.Tokens) > 0:
		return lacking("iam.tokens", "there are no workload identities; pass credentials in envVars")
	case len(b.VolumeMounts) > 0:
		return lacking("volumeMounts", "volumes are mounted by the environment (spec.overrides.volumes)")
	case b.Network != nil:
		return b.Network.unsupported()
	}
	return nil
}

func (n *createNetwork) unsupported() error {
	switch {
	case len(n.AllowOut) > 0 || len(n.DenyOut) > 0:
		return lacking("network.allowOut and network.denyOut", "there is no egress control yet; leave them out")
	case len(n.Rules) > 0:
		return lacking("network.rules", "there is no egress control yet; pass credentials in envVars")
	case isSet(n.EgressProxy):
		return lacking("network.egressProxy", "set HTTPS_PROXY in envVars for programs that honour it")
	case n.MaskRequestHost != nil && *n.MaskRequestHost != "":
		return lacking("network.maskRequestHost", "the Host header reaches the sandbox unchanged")
	case len(n.HTTPSPorts) > 0:
		return lacking("network.httpsPorts", "serve plain HTTP inside the sandbox; the gateway ends TLS")
	}
	return nil
}

func lacking(feature, advice string) *apiError {
	return &apiError{Status: http.StatusBadRequest, ErrorCode: codeNotImplemented,
		Message: feature + " is not supported by this platform: " + advice}
}

// checkEnvVars refuses what no process can have in its environment.
func checkEnvVars(vars map[string]string) error {
	for name, value := range vars {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return badRequest("envVars: %q cannot be set in an environment: a name has no '=' and is not empty, and neither part holds a zero byte", name)
		}
	}
	return nil
}

// asCreateError keeps to the statuses that E2B documents for create: what a request names and is not there is 400.
func asCreateError(err error) error {
	var failed *claim.Error
	if errors.As(err, &failed) && failed.Code == claim.CodeNotFound {
		out := fromClaim(failed)
		out.Status = http.StatusBadRequest
		return out
	}
	return err
}

func isTrue(b *bool) bool { return b != nil && *b }

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
