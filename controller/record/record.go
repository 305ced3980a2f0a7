// Package record keeps what is known of finished sandboxes, so that a restart of the controller loses none.
package record

import "time"

// Limits bounds the store. Zero fields take the defaults.
type Limits struct {
	// TTL is how long a record is kept; default 24 h.
	TTL time.Duration
	// Max is how many records are kept, newest first; default 10 000.
	Max int
	// FlushEvery is the shortest time between two writes of a busy store; default 50 ms.
	FlushEvery time.Duration
}

// Record is one finished sandbox.
type Record struct {
	SandboxID string `json:"sandboxId"`
	Namespace string `json:"namespace"`
	Team      string `json:"team,omitempty"`
	User      string `json:"user,omitempty"`
	Env       string `json:"envName,omitempty"`
	Pool      string `json:"poolName,omitempty"`
	Group     string `json:"scalingGroup,omitempty"`
	Pod       string `json:"podName,omitempty"`
	Node      string `json:"nodeName,omitempty"`
	// Status is the final status: Failed, Completed, Canceled or Released.
	Status string `json:"status"`

	ClaimedAt    time.Time `json:"claimedAt,omitzero"`
	StartedAt    time.Time `json:"startedAt,omitzero"`
	TerminatedAt time.Time `json:"terminatedAt"`
	LastActive   time.Time `json:"lastActive,omitzero"`
	// TimeoutSeconds is 0 when the sandbox had no timeout.
	TimeoutSeconds int64  `json:"timeoutSeconds,omitempty"`
	TimeoutMode    string `json:"timeoutMode,omitempty"`

	Metadata map[string]string `json:"metadata,omitempty"`
	// Images maps container name to the image it ran before the release.
	Images      map[string]string `json:"containerImages,omitempty"`
	ContainerID string            `json:"containerId,omitempty"`
	CPU         string            `json:"cpu,omitempty"`
	Memory      string            `json:"memory,omitempty"`

	FailureReason  string `json:"failureReason,omitempty"`
	FailureMessage string `json:"failureMessage,omitempty"`
	ExitCode       *int32 `json:"exitCode,omitempty"`
}
