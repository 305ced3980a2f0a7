// Package launch is what the node agent and the launcher inside a Pod (cmd/sandbox-init) say to each other: the
// description of a container, the requests on the control socket, and the opening of mounts, which either side does
// depending on who has the right to.
//
// It imports the standard library and x/sys only, so that the launcher stays small.
package launch

import "encoding/json"

// HostPrefix is where the launcher keeps the machine's file tree when it opens mounts by itself (ordinary users).
const HostPrefix = "/host"

// Container describes one container to the launcher. It travels in a memfd, so that environment variables are seen
// neither in an argument list nor in a file.
type Container struct {
	// Root is the root file system; Mounts are put on it in order.
	Root   Mount
	Mounts []Mount
	// ReadOnlyRoot makes the root file system read-only once all mount points exist.
	ReadOnlyRoot bool

	Args []string
	// Env is the whole environment as KEY=value.
	Env []string
	Cwd string
	UID uint32
	GID uint32
	// Groups are the supplementary groups; nil where the user namespace holds one id only.
	Groups []uint32
	// KeepGroups leaves the groups as they are (a user namespace with one id cannot set them).
	KeepGroups bool

	// Capabilities is the bounding set: numbers of capabilities(7). A process with another uid than 0 gets none.
	Capabilities []int
	// MaxProcesses limits the processes of the sandbox's user where no pids controller does; 0 sets no limit.
	MaxProcesses uint64
	OOMScoreAdj  int
	// CgroupFiles counts the files, after those of the mounts, that the launcher writes its pid to (cgroup.procs,
	// opened by the agent).
	CgroupFiles int

	// OCI is what an OCI runtime is told instead: its config.json, or the process of a command in a container. Volumes
	// are the mounts that it makes from VolumeDir; Root and Mounts are put together under RootDir before.
	OCI     json.RawMessage `json:",omitempty"`
	Volumes []Mount         `json:",omitempty"`
}

// OCIRuntime names an OCI runtime that starts containers in the launcher's place.
type OCIRuntime struct {
	// Program is its path on the machine; Flags come before its command.
	Program string
	Flags   []string
	// OwnPIDs says that the container's processes have no numbers of the kernel's: the runtime counts them itself.
	OwnPIDs bool
}

// Where an OCI runtime finds what is prepared for it, in its own view of the machine: a bundle for one call, and
// what the calls for one Pod share, in the memory volume StateVolume.
const (
	BundleDir   = "/run/bundle"
	RootDir     = BundleDir + "/rootfs"
	VolumeDir   = BundleDir + "/volumes" // each under its index
	StateDir    = "/run/state"
	StateVolume = ".state"
)

// Op is a request to the launcher.
type Op string

// The operations of the launcher.
const (
	OpStart  Op = "start"  // start a container: files are the spec, the two log files, mounts, cgroup files
	OpExec   Op = "exec"   // run a command in a container: file is the spec; answers with the exit code
	OpSignal Op = "signal" // signal a container's first process
	OpForget Op = "forget" // drop what is remembered of an ended container
	OpList   Op = "list"   // answer with every container that is not forgotten
	OpDial   Op = "dial"   // connect to a port of the Pod: the answer carries the connected socket
	OpWipe   Op = "wipe"   // drop the Pod's memory volumes
	OpExit   Op = "exit"   // an event: a container has ended
)

// Request is one message to the launcher.
type Request struct {
	Seq uint64
	Op  Op
	// ID names the container.
	ID string `json:",omitempty"`
	// Note comes back in the container's State, so that a restarted agent has it.
	Note   Note `json:",omitzero"`
	Signal int  `json:",omitempty"`
	// Port and Address (the Pod's own) are for OpDial.
	Port    int    `json:",omitempty"`
	Address string `json:",omitempty"`
	// SingleID maps the launcher's only id to this uid and gid inside the container.
	SingleID *ID `json:",omitempty"`
	// MemoryVolumes must exist before the container starts.
	MemoryVolumes []MemoryVolume `json:",omitempty"`
	// Runtime has an OCI runtime start the container.
	Runtime *OCIRuntime `json:",omitempty"`
}

// Note is what the agent wants to remember about a container.
type Note struct {
	// Group is the container's control group, and OOMKills what that had counted before the container started: a
	// group is used again by the next instance.
	Group    string
	OOMKills int
}

// ID is a user with its group.
type ID struct{ UID, GID int }

// MemoryVolume is a tmpfs that the containers of a Pod share; the launcher holds it. Size is in bytes, 0 for the
// kernel's default.
type MemoryVolume struct {
	Name string
	Size int64
}

// Reply is one message from the launcher: the answer to a Request, or with Op == OpExit an event.
type Reply struct {
	Seq        uint64
	Op         Op      `json:",omitempty"`
	Error      string  `json:",omitempty"`
	Errno      int     `json:",omitempty"`
	Containers []State `json:",omitempty"`
}

// State is a container as the launcher knows it.
type State struct {
	ID string
	// PID is the process id in the Pod's PID namespace.
	PID     int
	Note    Note
	Exited  bool
	Code    int
	Signal  int
	Started int64 // Unix nanoseconds
	Ended   int64 // Unix nanoseconds
}
