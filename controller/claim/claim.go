// Package claim hands warm Pods to sandboxes and takes them back.
//
// A claim is one compare-and-swap on one Pod. Once it is written, the claim never falls through to another Pod.
// A sandbox is handed out only when it is armed: envd has its environment, its access token, its default user and
// the clock. Nothing routes to a sandbox that is not armed.
package claim

import (
	"context"
	"net"
	"time"
)

// Owner is who a sandbox belongs to. Namespace, Team and User are those of the key that created it.
type Owner struct {
	Namespace string
	Team      string
	User      string
}

// TimeoutMode says what a sandbox's timeout counts.
type TimeoutMode string

const (
	// TimeoutIdle counts from the last activity through the gateway; activity pushes the end out. The default.
	TimeoutIdle TimeoutMode = "idle"
	// TimeoutAbsolute counts from create, connect or set_timeout only, as E2B does.
	TimeoutAbsolute TimeoutMode = "absolute"
)

// Request asks for a sandbox. Exactly one of Env and Pool names where it comes from, in the owner's namespace.
type Request struct {
	Owner Owner
	Env   string
	Pool  string
	// ScalingGroup pins the member pools that may serve the claim; no member in the group is an error.
	ScalingGroup string
	// Image replaces the main container's image (an in-place swap); empty means the pool's own image.
	Image    string
	Metadata map[string]string
	EnvVars  map[string]string
	// StartupTimeout bounds the whole claim; 0 takes the pool's default, else DefaultStartupTimeout, else two minutes.
	StartupTimeout        time.Duration
	DefaultStartupTimeout time.Duration
	// Timeout is the sandbox's life; 0 takes the pool's default, else none.
	Timeout     time.Duration
	TimeoutMode TimeoutMode
	// Secure gives the sandbox an envd access token.
	Secure bool
	// PrivateTraffic makes every port but envd's demand the sandbox's traffic token.
	PrivateTraffic bool
}

// Status is the life of a sandbox as the native API names it.
type Status string

// The statuses of a sandbox. The last four are final and live on in the record.
const (
	StatusPending   Status = "Pending"
	StatusStarting  Status = "Starting"
	StatusRunning   Status = "Running"
	StatusStopping  Status = "Stopping"
	StatusFailed    Status = "Failed"
	StatusCompleted Status = "Completed"
	StatusCanceled  Status = "Canceled"
	StatusReleased  Status = "Released"
)

// Sandbox is one claim, live or finished. Times that have not happened are zero.
type Sandbox struct {
	ID     string
	Owner  Owner
	Env    string
	Pool   string
	Group  string
	Pod    string
	PodIP  string
	Node   string
	Status Status
	// Armed is true once envd holds the sandbox's environment and token.
	Armed bool

	ClaimedAt    time.Time
	StartedAt    time.Time
	TerminatedAt time.Time
	RecycledAt   time.Time
	LastActive   time.Time
	// EndAt is when the sandbox ends unless something extends it; zero means never.
	EndAt       time.Time
	Timeout     time.Duration
	TimeoutMode TimeoutMode

	Metadata map[string]string
	// Images maps container name to the image the sandbox runs.
	Images      map[string]string
	ContainerID string
	// CPU and Memory are the main container's effective limits as Kubernetes quantities.
	CPU    string
	Memory string

	// AccessToken is envd's X-Access-Token; empty when the sandbox is not secure or finished.
	AccessToken string
	// TrafficToken is the e2b-traffic-access-token; empty unless PrivateTraffic.
	TrafficToken string

	FailureReason  string
	FailureMessage string
	ExitCode       *int32
}

// Filter narrows List. Zero fields match everything. Owner.Namespace empty means all namespaces (admins only: the
// surface has authorised that before it asks).
type Filter struct {
	Owner    Owner
	Env      string
	Pool     string
	Statuses []Status
	Metadata map[string]string
	// Finished includes records of ended sandboxes.
	Finished bool
}

// Reason says why a sandbox ends.
type Reason string

// The reasons a surface may give; the platform adds its own (idle timeout, failure).
const (
	ReasonKilled   Reason = "Killed"
	ReasonCanceled Reason = "Canceled"
)

// Service is what the surfaces (native API, E2B API, gateway) use. Implementations are safe for concurrent use.
// Errors are *Error. Authorisation is the caller's business: surfaces ask package access first.
type Service interface {
	// Create claims a Pod and returns when the sandbox is armed. When ctx ends first, the Pod goes back.
	Create(ctx context.Context, r Request) (Sandbox, error)
	// Get returns a live sandbox; finished true also looks at the records.
	Get(ctx context.Context, id string, finished bool) (Sandbox, error)
	// List returns matches, newest claim first.
	List(ctx context.Context, f Filter) ([]Sandbox, error)
	// Kill ends a sandbox. It returns once nothing routes to it any more; the Pod is reset or replaced behind it.
	Kill(ctx context.Context, id string, why Reason) error
	// SetTimeout makes the sandbox end d from now (idle mode: after d without activity).
	SetTimeout(ctx context.Context, id string, d time.Duration) (Sandbox, error)
	// Extend makes the sandbox end no earlier than d from now; it never shortens.
	Extend(ctx context.Context, id string, d time.Duration) (Sandbox, error)
	// Touch records activity on a sandbox. It never blocks and forgets unknown ids.
	Touch(id string)
	// Route answers the gateway from memory. The bool is false for ids that are unknown, ended or not armed.
	Route(id string) (Route, bool)
}

// Route is where the traffic of one armed sandbox goes.
type Route struct {
	Owner Owner
	// Dial opens a connection to a TCP port inside the sandbox.
	Dial func(ctx context.Context, port int) (net.Conn, error)
	// Done is closed when the sandbox ends: connections to it must be reset then.
	Done           <-chan struct{}
	AccessToken    string
	TrafficToken   string
	PrivateTraffic bool
}

// DialFunc opens a connection to a TCP port of a Pod. On a cluster it is a plain dial of podIP:port; the embedded
// platform reaches into the sandbox's network namespace.
type DialFunc func(ctx context.Context, podIP string, port int) (net.Conn, error)
