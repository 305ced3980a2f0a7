// Package record keeps what is known of finished sandboxes, so that a restart of the controller loses none.
//
// Records are written in batches: one ConfigMap per batch, in the system namespace. A batch is never changed; small
// ones are merged into larger ones, and one goes away when the last record in it has expired.
package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Limits bounds the store. Zero fields take the defaults.
type Limits struct {
	// TTL is how long a record is kept; default 24 h.
	TTL time.Duration
	// Max is how many records are kept, newest first; default 10 000.
	Max int
	// FlushEvery is the shortest time between two writes of a busy store; default 100 ms.
	FlushEvery time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.TTL <= 0 {
		l.TTL = 24 * time.Hour
	}
	if l.Max <= 0 {
		l.Max = 10_000
	}
	if l.FlushEvery <= 0 {
		l.FlushEvery = 100 * time.Millisecond
	}
	return l
}

// Record is one finished sandbox. Its JSON form is what is persisted.
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

// encode writes records one a line, the form of a batch.
func encode(records []*Record) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return nil, fmt.Errorf("encode the record of sandbox %s: %w", r.SandboxID, err)
		}
	}
	return b.Bytes(), nil
}

// decode reads a batch. It returns every line it understands, and how many it did not: one damaged line must not
// hide the others.
func decode(data []byte) (records []*Record, damaged int) {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		r := new(Record)
		if err := json.Unmarshal(line, r); err != nil || r.SandboxID == "" || r.Namespace == "" {
			damaged++
			continue
		}
		records = append(records, r)
	}
	return records, damaged
}
