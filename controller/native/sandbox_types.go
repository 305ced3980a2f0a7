package native

import (
	"time"

	"navix.sh/agentbox/controller/claim"
)

// The wire types of sandboxes, as the document has them.

type sandboxItem struct {
	SandboxID          string              `json:"sandboxId"`
	Namespace          string              `json:"namespace"`
	EnvName            string              `json:"envName,omitempty"`
	PoolName           string              `json:"poolName"`
	PodName            string              `json:"podName"`
	Status             claim.Status        `json:"status"`
	ClaimedAt          time.Time           `json:"claimedAt"`
	StartedAt          time.Time           `json:"startedAt,omitzero"`
	TerminatedAt       time.Time           `json:"terminatedAt,omitzero"`
	RecycledAt         time.Time           `json:"recycledAt,omitzero"`
	DurationSeconds    *int64              `json:"durationSeconds,omitempty"`
	IdleTimeoutSeconds int64               `json:"idleTimeoutSeconds,omitempty"`
	FailureReason      string              `json:"failureReason,omitempty"`
	FailureMessage     string              `json:"failureMessage,omitempty"`
	ExitCode           *int32              `json:"exitCode,omitempty"`
	ContainerImages    map[string]string   `json:"containerImages,omitempty"`
	Metadata           map[string]string   `json:"metadata,omitempty"`
	Endpoints          map[string]endpoint `json:"endpoints,omitempty"`
	CPU                string              `json:"cpu,omitempty"`
	Memory             string              `json:"memory,omitempty"`
	Team               string              `json:"team,omitempty"`
	User               string              `json:"user,omitempty"`
	NodeName           string              `json:"nodeName,omitempty"`
	ContainerID        string              `json:"containerId,omitempty"`
}

type endpoint struct {
	URL    string `json:"url"`
	LogDir string `json:"logDir,omitempty"`
}

type sandboxEnvelope struct {
	Sandbox sandboxItem `json:"sandbox"`
}

type sandboxResult struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
}

type createSandboxBody struct {
	PoolName        string            `json:"poolName"`
	Image           string            `json:"image"`
	ContainerImages map[string]string `json:"containerImages"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
	Metadata        map[string]string `json:"metadata"`
	StartupTimeout  string            `json:"startupTimeout"`
	IdleTimeout     string            `json:"idleTimeout"`
}

// sandboxItemOf is a sandbox on the wire. now counts the duration of one that runs; the zero time leaves it out, where
// rows are compared over time.
func sandboxItemOf(s claim.Sandbox, now time.Time) sandboxItem {
	i := sandboxItem{
		SandboxID: s.ID, Namespace: s.Owner.Namespace, EnvName: s.Env, PoolName: s.Pool, PodName: s.Pod, Status: s.Status,
		ClaimedAt: s.ClaimedAt.UTC(), StartedAt: utc(s.StartedAt), TerminatedAt: utc(s.TerminatedAt), RecycledAt: utc(s.RecycledAt),
		IdleTimeoutSeconds: int64(s.Timeout / time.Second),
		FailureReason:      s.FailureReason, FailureMessage: s.FailureMessage, ExitCode: s.ExitCode,
		ContainerImages: s.Images, Metadata: s.Metadata, CPU: s.CPU, Memory: s.Memory,
		Team: s.Owner.Team, User: s.Owner.User, NodeName: s.Node, ContainerID: s.ContainerID,
	}
	end := s.TerminatedAt
	if end.IsZero() && s.Status == claim.StatusRunning {
		end = now
	}
	if !s.StartedAt.IsZero() && !end.IsZero() {
		seconds := int64(max(end.Sub(s.StartedAt), 0) / time.Second)
		i.DurationSeconds = &seconds
	}
	return i
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
