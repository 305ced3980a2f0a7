package namespaces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/cgroup"
	"navix.sh/agentbox/controller/embedded/runtime/launch"
	"navix.sh/agentbox/controller/embedded/runtime/oci"
)

// DefaultCapabilities is what a container's root may have: what container runtimes grant, without raw sockets, device
// nodes, file capabilities and the audit log.
var DefaultCapabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// capabilityNumbers are those of capabilities(7) that a container may ask for.
var capabilityNumbers = map[string]int{
	"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "FOWNER": unix.CAP_FOWNER, "FSETID": unix.CAP_FSETID,
	"KILL": unix.CAP_KILL, "NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "SETGID": unix.CAP_SETGID,
	"SETPCAP": unix.CAP_SETPCAP, "SETUID": unix.CAP_SETUID, "SYS_CHROOT": unix.CAP_SYS_CHROOT,
	"SETFCAP": unix.CAP_SETFCAP, "NET_RAW": unix.CAP_NET_RAW, "SYS_PTRACE": unix.CAP_SYS_PTRACE,
}

// AllowedCapability reports whether a container may ask for a capability (its name without CAP_).
func AllowedCapability(name string) bool { _, ok := capabilityNumbers[name]; return ok }

const (
	shmSize = "67108864" // of /dev/shm, as container runtimes have it
	// oomScoreAdj makes the kernel choose a sandbox, and not the controller, when the machine runs out of memory.
	oomScoreAdj = 500
	ttyGroup    = "5"
)

// Start implements runtime.Pod.
func (p *pod) Start(ctx context.Context, c runtime.ContainerConfig) (err error) {
	dir := p.containerDir(c.ID)
	defer func() {
		if err != nil && !errors.Is(err, runtime.ErrGone) && dirExists(dir) {
			p.runtime.removeInBackground(dir)
		}
	}()
	if err := p.makeLayers(ctx, dir, c.Root.Tree, c.Files); err != nil {
		return err
	}
	spec, request, err := p.describe(c, dir)
	if err != nil {
		return err
	}
	path := p.group(c.Name)
	g, err := p.runtime.cgroups.Create(path, c.Limits)
	if err != nil {
		return err
	}
	request.Note = launch.Note{Group: path, OOMKills: g.OOMKills()}
	procs, err := g.Open()
	if err != nil {
		return err
	}
	defer closeFiles(procs)
	spec.CgroupFiles = len(procs)

	var logs []*os.File
	defer func() { closeFiles(logs) }()
	for _, path := range p.LogFiles(c.ID) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		logs = append(logs, f)
	}
	mounts, err := p.openMounts(spec)
	defer launch.CloseAll(mounts)
	if err != nil {
		return &runtime.StartError{Err: err}
	}
	specFD, err := launch.WriteSpec(spec)
	if err != nil {
		return err
	}
	defer unix.Close(specFD)

	fds := append([]int{specFD, int(logs[0].Fd()), int(logs[1].Fd())}, mounts...)
	fds = append(fds, fileDescriptors(procs)...)
	if _, _, err := p.client.call(ctx, request, fds...); err != nil {
		if remote := (*remoteError)(nil); errors.As(err, &remote) {
			return &runtime.StartError{Err: err}
		}
		return err
	}
	return nil
}

// group is the path of a container's control group.
func (p *pod) group(container string) string { return p.config.UID + "/" + container }

func fileDescriptors(files []*os.File) []int {
	fds := make([]int, 0, len(files))
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	return fds
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// openMounts opens, with the rights of the machine's root, the mounts that the sandbox has no right to open.
func (p *pod) openMounts(spec *launch.Container) ([]int, error) {
	if p.runtime.ids.Single() {
		return nil, nil
	}
	var fds []int
	all := []*launch.Mount{&spec.Root}
	for i := range spec.Mounts {
		all = append(all, &spec.Mounts[i])
	}
	for i := range spec.Volumes {
		all = append(all, &spec.Volumes[i])
	}
	for _, m := range all {
		if !m.NeedsRights() {
			continue
		}
		fd, err := m.Open("")
		if err != nil && m.Optional {
			continue
		}
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
		m.Passed = true
	}
	return fds, nil
}

// makeLayers makes the writable layer of a container, or where there are no overlays its whole root, and writes files
// into it.
func (p *pod) makeLayers(ctx context.Context, dir, tree string, files map[string]string) error {
	upper := filepath.Join(dir, upperName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if p.runtime.copyRoots {
		copied, err := copyTree(ctx, tree, upper)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, copiedName), strconv.AppendUint(nil, copied, 10), 0o600)
		}
		if err != nil {
			return err
		}
	} else {
		for _, d := range []string{upper, filepath.Join(dir, workName)} {
			if err := os.Mkdir(d, 0o755); err != nil {
				return err
			}
		}
		if err := p.chown(upper); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(upper)
	if err != nil {
		return err
	}
	defer root.Close()
	for path, content := range files {
		path = strings.TrimPrefix(path, "/")
		for i, r := range path {
			if r != '/' {
				continue
			}
			if err := root.Mkdir(path[:i], 0o755); err == nil {
				if err := p.chown(filepath.Join(upper, path[:i])); err != nil {
					return err
				}
			} else if !errors.Is(err, os.ErrExist) {
				return err
			}
		}
		if p.runtime.copyRoots { // the image may have a link there
			if err := root.RemoveAll(path); err != nil {
				return err
			}
		}
		if err := root.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
		if err := p.chown(filepath.Join(upper, path)); err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) chown(path string) error {
	if p.runtime.ids.Single() {
		return nil
	}
	return os.Lchown(path, p.runtime.ids.Base, p.runtime.ids.Base)
}

// describe turns a container's configuration into what its launcher does.
func (p *pod) describe(c runtime.ContainerConfig, dir string) (*launch.Container, launch.Request, error) {
	request := launch.Request{Op: launch.OpStart, ID: c.ID}
	single := p.runtime.ids.Single()
	if single {
		request.SingleID = &launch.ID{UID: int(c.User.UID), GID: int(c.User.GID)}
	} else if max(c.User.UID, c.User.GID) >= uint32(p.runtime.ids.Size) {
		return nil, request, fmt.Errorf("user %d:%d is outside of 0..%d, the users a sandbox has here", c.User.UID, c.User.GID, p.runtime.ids.Size-1)
	}
	root := launch.Mount{
		Kind: launch.Overlay, Target: "/", Lower: c.Root.Tree, Upper: filepath.Join(dir, upperName),
		Work: filepath.Join(dir, workName), UserXattr: single, Exec: true,
	}
	if p.runtime.copyRoots {
		root = launch.Mount{Kind: launch.Bind, Target: "/", Source: filepath.Join(dir, upperName), Exec: true}
	}
	spec := &launch.Container{
		Root:         root,
		ReadOnlyRoot: c.Root.ReadOnly,
		Args:         c.Args, Env: c.Env, Cwd: c.Cwd,
		UID: c.User.UID, GID: c.User.GID, Groups: c.User.Groups, KeepGroups: single,
		OOMScoreAdj: oomScoreAdj,
	}
	if !p.runtime.cgroups.Has(cgroup.PIDs) && c.Limits.Processes > 0 {
		spec.MaxProcesses = uint64(c.Limits.Processes)
	}
	if len(spec.Args) == 0 {
		return nil, request, errors.New("no command is given, and the image has none")
	}
	var err error
	if spec.Capabilities, err = numbers(c.Capabilities); err != nil {
		return nil, request, err
	}
	for _, path := range c.Root.Machine {
		spec.Mounts = append(spec.Mounts, machineMount(path))
	}
	kernel := kernelMounts(single)
	var volumes []launch.Mount
	for _, m := range c.Mounts {
		mount := launch.Mount{
			Kind: launch.Bind, Source: m.Source, Target: m.Target, SubPath: m.SubPath, ReadOnly: m.ReadOnly, Exec: true,
		}
		if m.Memory != "" {
			mount.Kind, mount.Source = launch.Memory, m.Memory
			request.MemoryVolumes = append(request.MemoryVolumes, launch.MemoryVolume{Name: m.Memory, Size: m.Size})
		} else if mount.File, err = p.prepareSource(m); err != nil {
			return nil, request, err
		}
		volumes = append(volumes, mount)
	}
	if p.runtime.oci == nil {
		spec.Mounts = slices.Concat(spec.Mounts, kernel, p.runtime.cgroups.Mounts(p.group(c.Name)), volumes)
		return spec, request, nil
	}
	request.Runtime = p.runtime.oci.Launch()
	spec.Volumes = volumes
	spec.OCI, err = p.runtime.oci.Config(p.config.Hostname, spec, c.Capabilities, kernel)
	return spec, request, err
}

// prepareSource makes a missing sub-path, writable for everyone as its volume is, and tells whether the source is a
// file. The volume may hold links that a sandbox has made: they are not followed out of it.
func (p *pod) prepareSource(m runtime.Mount) (file bool, err error) {
	fd, err := unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("volume for %s: %w", m.Target, err)
	}
	if m.SubPath != "" {
		root := fd
		fd, err = launch.EnsureInRoot(root, m.SubPath, false, func(dir int, name string) error {
			if err := unix.Fchmodat(dir, name, 0o777, 0); err != nil || p.runtime.ids.Single() {
				return err
			}
			return unix.Fchownat(dir, name, p.runtime.ids.Base, p.runtime.ids.Base, unix.AT_SYMLINK_NOFOLLOW)
		})
		unix.Close(root)
		if err != nil {
			return false, fmt.Errorf("volume for %s: subPath %q: %w", m.Target, m.SubPath, err)
		}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return st.Mode&unix.S_IFMT != unix.S_IFDIR, nil
}

func numbers(capabilities []string) ([]int, error) {
	list := make([]int, 0, len(capabilities))
	for _, name := range capabilities {
		number, ok := capabilityNumbers[name]
		if !ok {
			return nil, fmt.Errorf("the capability %s cannot be granted to a sandbox", name)
		}
		list = append(list, number)
	}
	return list, nil
}

func machineMount(path string) launch.Mount {
	m := launch.Mount{Kind: launch.Bind, Source: path, Target: path, ReadOnly: true, Exec: true}
	if st, err := os.Stat(path); err == nil {
		m.File = !st.IsDir()
	}
	return m
}

// maxTerminals is how many pseudo-terminals a container can have at once.
const maxTerminals = "256"

// kernelMounts are what every container has besides its image.
func kernelMounts(single bool) []launch.Mount {
	// The machine's terminals are counted over all mounts: one sandbox must not take them all.
	pts := map[string]string{"ptmxmode": "0666", "mode": "0620", "max": maxTerminals}
	if !single {
		pts["gid"] = ttyGroup
	}
	mounts := []launch.Mount{
		{Kind: launch.Proc, Target: "/proc"},
		{Kind: launch.Sysfs, Target: "/sys", ReadOnly: true, Optional: true},
		{Kind: launch.Tmpfs, Target: "/dev", Options: map[string]string{"mode": "755", "size": "65536"}},
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		mounts = append(mounts, launch.Mount{Kind: launch.Bind, Source: "/dev/" + name, Target: "/dev/" + name, File: true, Device: true})
	}
	return append(mounts,
		launch.Mount{Kind: launch.Devpts, Target: "/dev/pts", Options: pts, Device: true},
		launch.Mount{Kind: launch.Tmpfs, Target: "/dev/shm", Options: map[string]string{"mode": "1777", "size": shmSize}},
		launch.Mount{Kind: launch.Mqueue, Target: "/dev/mqueue"},
	)
}

// maxExecOutput bounds what an exec returns.
const maxExecOutput = 10 << 10

// Exec implements runtime.Pod.
func (p *pod) Exec(ctx context.Context, c runtime.ExecConfig) (int, []byte, error) {
	spec := &launch.Container{
		Args: c.Args, Env: c.Env, Cwd: c.Cwd, UID: c.User.UID, GID: c.User.GID, Groups: c.User.Groups,
	}
	var err error
	if spec.Capabilities, err = numbers(c.Capabilities); err != nil {
		return 0, nil, err
	}
	switch {
	case p.runtime.oci != nil:
		if spec.OCI, err = oci.Process(spec, c.Capabilities); err != nil {
			return 0, nil, err
		}
	case p.runtime.ids.Single():
		// The command joins the container from the Pod's user namespace, where the only user is 0.
		spec.UID, spec.GID, spec.KeepGroups, spec.Capabilities = 0, 0, true, nil
	}
	procs, err := p.runtime.cgroups.Find(p.group(c.Name)).Open()
	if err != nil {
		return 0, nil, err
	}
	defer closeFiles(procs)
	spec.CgroupFiles = len(procs)
	specFD, err := launch.WriteSpec(spec)
	if err != nil {
		return 0, nil, err
	}
	defer unix.Close(specFD)
	var out [2]int
	for i := range out {
		if out[i], err = unix.MemfdCreate("output", unix.MFD_CLOEXEC); err != nil {
			return 0, nil, err
		}
		defer unix.Close(out[i])
		if _, err := unix.FcntlInt(uintptr(out[i]), unix.F_SETFL, unix.O_APPEND); err != nil {
			return 0, nil, err
		}
	}
	seconds := int(max(c.Timeout.Seconds(), 1))
	reply, _, err := p.client.call(ctx, launch.Request{Op: launch.OpExec, ID: c.ID, Signal: seconds}, append([]int{specFD, out[0], out[1]}, fileDescriptors(procs)...)...)
	if err != nil {
		return 0, nil, err
	}
	if len(reply.Containers) != 1 {
		return 0, nil, errors.New("the sandbox did not say how the command ended")
	}
	return reply.Containers[0].Code, execOutput(out[0]), nil
}

// execOutput takes the text out of the log format.
func execOutput(fd int) []byte {
	buf := make([]byte, maxExecOutput)
	n, err := unix.Pread(fd, buf, 0)
	if err != nil {
		return nil
	}
	var text []byte
	for _, line := range bytes.Split(buf[:n], []byte("\n")) {
		if parts := bytes.SplitN(line, []byte(" "), 4); len(parts) == 4 {
			text = append(text, parts[3]...)
			if bytes.Equal(parts[2], []byte("F")) {
				text = append(text, '\n')
			}
		}
	}
	return slices.Clip(text)
}
