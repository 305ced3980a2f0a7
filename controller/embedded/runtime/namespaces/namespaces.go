// Package namespaces is the built-in sandbox runtime: Linux namespaces, pivot_root, dropped capabilities, a seccomp
// filter and control groups, with nothing to install, for root and for ordinary users. In the same sandboxes it has an
// OCI runtime start the containers, where one is asked for.
package namespaces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/cgroup"
	"navix.sh/agentbox/controller/embedded/runtime/oci"
)

// Name is the runtime's name in runtimeClassName and --runtime.
const Name = "namespaces"

// The users of the machine that the sandboxes' users are when the agent is root: one range for all sandboxes, well
// above those of people and below those that subordinate ids are usually taken from.
const (
	idBase = 100_000
	idSize = 65_536
)

// Options are what the runtime needs from the agent.
type Options struct {
	// Launcher is the path of sandbox-init.
	Launcher string
	// Name marks everything this agent makes on the machine; the same for every run on one data directory.
	Name string
	// Dir is a directory on the file system of the Pods' directories, where overlays are tried.
	Dir string
	// Logger hears of clean-up that failed in the background; nil discards it.
	Logger *slog.Logger
}

// Runtime is the built-in runtime.
type Runtime struct {
	launcher *os.File
	path     string
	name     string
	cgroups  *cgroup.Manager
	ids      runtime.IDs
	log      *slog.Logger
	files    *sync.WaitGroup // deletions in the background
	oci      *oci.Runtime    // starts the containers; nil for the built-in way
	// copyRoots is set where overlays do not work: every container gets a copy of its image.
	copyRoots bool
}

var _ runtime.Runtime = (*Runtime)(nil)

// New checks that the machine can run sandboxes.
func New(o Options) (*Runtime, error) {
	launcher, err := openLauncher(o.Launcher)
	if err != nil {
		return nil, fmt.Errorf("the sandbox launcher is missing: %w; build it with: make build", err)
	}
	if err := errors.Join(checkKernel(), raiseSharedLimits()); err != nil {
		launcher.Close()
		return nil, err
	}
	cgroups, err := cgroup.New(o.Name)
	if err != nil {
		launcher.Close()
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runtime{launcher: launcher, path: o.Launcher, name: o.Name, cgroups: cgroups, log: o.Logger, files: &sync.WaitGroup{}}
	r.ids = runtime.IDs{Base: os.Geteuid(), Size: 1}
	if os.Geteuid() == 0 {
		r.ids = runtime.IDs{Base: idBase, Size: idSize}
	}
	if o.Dir != "" {
		if err := r.tryOverlay(o.Dir); err != nil {
			r.copyRoots = true
			o.Logger.Warn("overlays do not work in the data directory: every start of a container copies its image, which costs the time and, where the file system cannot share blocks, the room; a data directory on ext4, XFS, Btrfs or tmpfs avoids it", "dir", o.Dir, "error", err)
		}
	}
	return r, nil
}

// firstFree is above the descriptors that the launcher starts with: they take their places before it is executed, by
// its own descriptor.
const firstFree = 16

func openLauncher(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, firstFree)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Close waits for deletions and lets go of what New took. Sandboxes go on.
func (r *Runtime) Close() {
	r.files.Wait()
	r.cgroups.Close()
	r.launcher.Close()
}

// checkKernel looks for what the runtime cannot do without.
func checkKernel() error {
	// mount_setattr is the youngest system call needed (Linux 5.12); an invalid use tells whether it exists.
	if err := unix.MountSetattr(-1, "", 0, &unix.MountAttr{}); errors.Is(err, unix.ENOSYS) {
		return errors.New("the built-in runtime needs Linux 5.12 or later: this kernel has no mount_setattr")
	}
	if limit, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err == nil && strings.TrimSpace(string(limit)) == "0" {
		return errors.New("user namespaces are switched off on this machine: set sysctl user.max_user_namespaces to more than 0")
	}
	return nil
}

// raiseSharedLimits lifts this process's limits on what the kernel counts over all of its user namespaces: a namespace
// keeps the limit that its maker had. The launcher sets the sandbox's own.
func raiseSharedLimits() error {
	for _, resource := range []int{unix.RLIMIT_MSGQUEUE, unix.RLIMIT_SIGPENDING} {
		err := unix.Setrlimit(resource, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
		if errors.Is(err, unix.EPERM) { // not root: as far as the machine allows
			var l unix.Rlimit
			if err = unix.Getrlimit(resource, &l); err == nil {
				l.Cur = l.Max
				err = unix.Setrlimit(resource, &l)
			}
		}
		if err != nil {
			return fmt.Errorf("lift the limits that sandboxes share: %w", err)
		}
	}
	return nil
}

// With returns a runtime whose containers an OCI runtime starts. It shares everything else with r, and is closed with it.
func (r *Runtime) With(o *oci.Runtime) *Runtime {
	with := *r
	with.oci = o
	return &with
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string {
	if r.oci != nil {
		return r.oci.Name
	}
	return Name
}

// IDs implements runtime.Runtime.
func (r *Runtime) IDs() runtime.IDs { return r.ids }

// Describe implements runtime.Runtime.
func (r *Runtime) Describe() string {
	text := "namespaces (built in)"
	if r.oci != nil {
		text = r.oci.Describe()
	}
	text += ": own user, process, mount, IPC, host-name, network and cgroup namespaces, no new privileges, few capabilities, seccomp filter"
	if r.ids.Single() {
		text += "; one user per sandbox"
	}
	if missing := r.cgroups.Missing(); len(missing) > 0 {
		text += "; not limited on this machine: " + strings.Join(missing, ", ")
	} else {
		text += "; memory, CPU and processes limited"
	}
	if r.copyRoots {
		text += "; images are copied for every container, since the data directory carries no overlays"
	}
	return text
}

// Missing lists the cgroup controllers that this machine does not let the agent use.
func (r *Runtime) Missing() []string { return r.cgroups.Missing() }

// Leftovers implements runtime.Runtime.
func (r *Runtime) Leftovers(ctx context.Context, keep map[string]bool) error {
	var errs []error
	for _, pod := range r.cgroups.Pods() {
		if !keep[pod] {
			errs = append(errs, r.cgroups.RemoveAll(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

// removeInBackground deletes a directory without making anyone wait. It is moved out of the way first, so that its
// name is free at once; what a crash leaves is deleted with the Pod's directory.
func (r *Runtime) removeInBackground(dir string) {
	trash := filepath.Join(filepath.Dir(dir), ".trash-"+filepath.Base(dir))
	if err := os.Rename(dir, trash); err != nil {
		trash = dir
	}
	r.files.Go(func() {
		if err := RemoveTree(trash); err != nil {
			r.log.Error("files of an ended sandbox are left until its Pod goes", "error", err)
		}
	})
}

// Limits reports whether the agent can limit a cgroup controller's resource ("memory", "cpu", "pids").
func (r *Runtime) Limits(controller string) bool { return r.cgroups.Has(controller) }
