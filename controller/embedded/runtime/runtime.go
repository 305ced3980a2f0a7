// Package runtime says what the node agent needs from a sandbox runtime. The built-in one is package namespaces.
package runtime

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// ErrGone is returned for a Pod whose sandbox does not run any more.
var ErrGone = errors.New("the Pod's sandbox does not run")

// Runtime runs Pods as sandboxes. Implementations are safe for concurrent use.
type Runtime interface {
	// Name is what a Pod's runtimeClassName may say.
	Name() string
	// Describe says in one line what isolates the sandboxes, and what this machine does not allow.
	Describe() string
	// IDs says which users of the machine the sandboxes' users are.
	IDs() IDs
	// StartPod starts a sandbox without containers. It ends with this process until Persist.
	StartPod(ctx context.Context, p PodConfig) (Pod, error)
	// AdoptPod returns the sandbox that an earlier process started in p.Dir, or ErrGone.
	AdoptPod(ctx context.Context, p PodConfig) (Pod, error)
	// Leftovers ends and removes what is left of Pods other than those named by UID.
	Leftovers(ctx context.Context, keep map[string]bool) error
}

// PodConfig describes a sandbox.
type PodConfig struct {
	UID      string
	Hostname string
	// Dir is the Pod's own directory; the runtime keeps its files in it.
	Dir string
	// Address is the Pod's IPv4 address.
	Address string
	// LoopbackOnly gives the address to the loopback interface: there is no other.
	LoopbackOnly bool
}

// Pod is a running sandbox.
type Pod interface {
	// PID is the process whose namespaces are the Pod's, as this machine counts.
	PID() int
	// Persist lets the sandbox outlive this process. It is called once everything that the sandbox has on the machine is
	// on record, so that a process killed before leaves nothing.
	Persist() error
	// Start runs a container and returns once its program runs.
	Start(ctx context.Context, c ContainerConfig) error
	// Exec runs a command in a container, as the container's user, and waits for it.
	Exec(ctx context.Context, c ExecConfig) (code int, output []byte, err error)
	// Signal signals a container's first process. SIGKILL ends all of the container.
	Signal(ctx context.Context, id string, sig syscall.Signal) error
	// Containers lists what runs and what has ended and was not removed.
	Containers(ctx context.Context) ([]ContainerState, error)
	// Remove forgets an ended container and deletes its files and logs.
	Remove(ctx context.Context, id string) error
	// WipeMemoryVolumes empties every memory volume. No container may run.
	WipeMemoryVolumes(ctx context.Context) error
	// Dial connects to a TCP port of the Pod, whether the service listens on localhost or on the Pod's address.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// LogFiles are the two files that hold a container's output in turn, in the format of the container runtime
	// interface.
	LogFiles(id string) [2]string
	// Exits delivers ended containers, each once per process of the agent.
	Exits() <-chan ContainerState
	// Done is closed when the sandbox is gone.
	Done() <-chan struct{}
	// Stop ends everything in the sandbox at once and removes the runtime's files.
	Stop(ctx context.Context) error
	// Release lets go of the sandbox without ending it.
	Release()
}

// ContainerConfig describes a container. Nothing in it is looked up again: users are numbers, images are paths.
type ContainerConfig struct {
	// ID is unique on the node; Name is unique in the Pod and stays over restarts.
	ID   string
	Name string
	Root Root
	// Mounts come on top of the root, in order.
	Mounts []Mount
	// Files are written into the container's own layer: path to content.
	Files        map[string]string
	Args         []string
	Env          []string
	Cwd          string
	User         User
	Capabilities []string
	Limits       Limits
}

// Root is the root file system: a read-only tree with a writable layer of the container's own, and read-only parts of
// the machine on top of it.
type Root struct {
	Tree     string
	Machine  []string
	ReadOnly bool
}

// Mount is a volume in a container. Exactly one of Source (a directory or file of the machine) and Memory (the name
// of a memory volume of the Pod) is set.
type Mount struct {
	Source   string
	Memory   string
	Size     int64 // of a new memory volume, in bytes; 0 for the kernel's default
	SubPath  string
	Target   string
	ReadOnly bool
}

// User is who a container runs as, in the sandbox's own numbers.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Limits bound a container; zero values set no limit.
type Limits struct {
	MemoryBytes int64
	CPUMillis   int64 // thousandths of a core
	CPUShares   int64 // the relative weight as cpu.shares counts it
	Processes   int64
}

// ExecConfig is a command in a container.
type ExecConfig struct {
	ID      string
	Name    string
	Args    []string
	Env     []string
	Cwd     string
	User    User
	Timeout time.Duration
	// Capabilities are the container's.
	Capabilities []string
}

// ContainerState is a container as the runtime sees it.
type ContainerState struct {
	ID        string
	Running   bool
	Code      int
	Signal    int
	OOMKilled bool
	StartedAt time.Time
	EndedAt   time.Time
}

// IDs maps the users of a sandbox to users of the machine.
type IDs struct {
	// Base is the machine's user that is root in a sandbox; the following Size-1 users follow it.
	Base int
	// Size is 1 where sandboxes have one user only: the one that runs the agent.
	Size int
}

// Single reports whether a sandbox has one user only.
func (i IDs) Single() bool { return i.Size == 1 }

// StartError is a container that could not be run: its program is missing or a volume cannot be mounted.
type StartError struct{ Err error }

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }
