// Package oci knows the OCI runtimes that may start a sandbox's containers: how they are found, what they are told, and
// what they isolate. Package namespaces makes the sandboxes.
//
// A runtime is executed inside of the Pod's user namespace, and so has no right on the machine. Control groups are set
// before it starts and it is told to leave them alone: limits are the same whichever runtime is used.
package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// ErrAbsent is a known runtime that is not on the PATH.
var ErrAbsent = errors.New("not on the PATH of the controller")

// Names are the runtimes that are known, the strongest first.
var Names = []string{"runsc", "runc", "crun"}

// Runtime is an OCI runtime on this machine.
type Runtime struct {
	Name    string
	path    string
	version string
}

// Find looks for a runtime on the PATH.
func Find(ctx context.Context, name string) (*Runtime, error) {
	if !slices.Contains(Names, name) {
		return nil, fmt.Errorf("not one of %s", strings.Join(Names, ", "))
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", ErrAbsent, os.Getenv("PATH"))
	}
	// Its folder may be a link that does not exist where the runtime is executed.
	if path, err = filepath.EvalSymlinks(path); err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	version := strings.TrimPrefix(string(line), name+" version ")
	return &Runtime{Name: name, path: path, version: version}, nil
}

// OnPath lists the known runtimes that are on the PATH.
func OnPath() []string {
	var found []string
	for _, name := range Names {
		if _, err := exec.LookPath(name); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// OwnKernel reports whether a container's system calls go to a kernel of its own.
func (r *Runtime) OwnKernel() bool { return r.Name == "runsc" }

// Describe says in a few words what the runtime is.
func (r *Runtime) Describe() string {
	text := r.Name + " " + r.version
	if r.OwnKernel() {
		text += " (gVisor: system calls go to a kernel of the container's own, but those on sockets to the machine's, in the Pod's network namespace)"
	}
	return text
}

// Launch tells the launcher how to call the runtime.
func (r *Runtime) Launch() *launch.OCIRuntime {
	l := &launch.OCIRuntime{Program: r.path, Flags: []string{"--root=" + launch.StateDir + "/" + r.Name}, OwnPIDs: r.OwnKernel()}
	switch r.Name {
	case "runc":
		// Not for want of rights: this is how runc is told to go on where it cannot write control groups.
		l.Flags = append(l.Flags, "--rootless=true")
	case "crun":
		l.Flags = append(l.Flags, "--cgroup-manager=disabled")
	case "runsc":
		// "host" is the network namespace that runsc is in, the Pod's. With a network stack of gVisor's own the Pod's
		// services could not be reached on localhost.
		l.Flags = append(l.Flags, "--ignore-cgroups", "--network=host", "--oci-seccomp")
	}
	return l
}
