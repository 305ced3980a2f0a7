package oci

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// version of the specification: what is used of it every runtime in use understands.
const version = "1.0.2"

// Config writes the config.json of a container. Its root and the sources of its volumes are prepared by the launcher;
// capabilities are names without CAP_; kernel are the mounts that every container has.
func (r *Runtime) Config(hostname string, c *launch.Container, capabilities []string, kernel []launch.Mount) (json.RawMessage, error) {
	config := specs.Spec{
		Version:  version,
		Hostname: hostname,
		Process:  process(c, capabilities),
		Root:     &specs.Root{Path: launch.RootDir, Readonly: c.ReadOnlyRoot},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.CgroupNamespace},
			},
			Seccomp:       r.seccomp(),
			MaskedPaths:   launch.HiddenFiles,
			ReadonlyPaths: launch.ReadOnlyFiles,
		},
	}
	for _, m := range kernel {
		if m.Kind == launch.Bind {
			continue // a device, which every runtime makes by itself
		}
		mount := specs.Mount{Destination: m.Target, Type: string(m.Kind), Source: string(m.Kind), Options: flags(m)}
		if m.Kind == launch.Devpts {
			mount.Options = append(mount.Options, "newinstance")
		}
		for k, v := range m.Options {
			mount.Options = append(mount.Options, k+"="+v)
		}
		config.Mounts = append(config.Mounts, mount)
	}
	for i, m := range c.Volumes {
		config.Mounts = append(config.Mounts, specs.Mount{
			Destination: m.Target, Type: "bind", Source: path.Join(launch.VolumeDir, strconv.Itoa(i)),
			Options: append(flags(m), "rbind"),
		})
	}
	return json.Marshal(config)
}

// Process writes the description of a command in a running container.
func Process(c *launch.Container, capabilities []string) (json.RawMessage, error) {
	return json.Marshal(process(c, capabilities))
}

func process(c *launch.Container, capabilities []string) *specs.Process {
	p := &specs.Process{
		Args: c.Args, Env: c.Env, Cwd: path.Join("/", c.Cwd),
		User:            specs.User{UID: c.UID, GID: c.GID, AdditionalGids: c.Groups},
		NoNewPrivileges: true,
		Capabilities:    &specs.LinuxCapabilities{},
		Rlimits:         []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}},
	}
	if c.MaxProcesses > 0 {
		p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NPROC", Hard: c.MaxProcesses, Soft: c.MaxProcesses})
	}
	for _, name := range capabilities {
		p.Capabilities.Bounding = append(p.Capabilities.Bounding, "CAP_"+name)
	}
	if c.UID == 0 {
		p.Capabilities.Effective = slices.Clone(p.Capabilities.Bounding)
		p.Capabilities.Permitted = p.Capabilities.Effective
	}
	return p
}

func flags(m launch.Mount) []string {
	options := []string{"nosuid"}
	if !m.Device {
		options = append(options, "nodev")
	}
	if !m.Exec {
		options = append(options, "noexec")
	}
	if m.ReadOnly {
		options = append(options, "ro")
	}
	return options
}

// seccomp is the filter of the built-in runtime in the words of the specification.
func (r *Runtime) seccomp() *specs.LinuxSeccomp {
	absent := uint(unix.ENOSYS)
	s := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow}
	refuse := func(name string, args ...specs.LinuxSeccompArg) {
		s.Syscalls = append(s.Syscalls, specs.LinuxSyscall{Names: []string{name}, Action: specs.ActErrno, Args: args})
	}
	for _, call := range launch.Refused {
		refuse(call.Name)
	}
	if !r.OwnKernel() {
		// The flags of clone3 lie in memory, out of a filter's sight: callers fall back to clone when it does not exist.
		// gVisor would answer EPERM, and they would not.
		s.Syscalls = append(s.Syscalls, specs.LinuxSyscall{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &absent})
	}
	for bit := uint64(1); bit <= launch.NewNamespaces; bit <<= 1 {
		if launch.NewNamespaces&bit != 0 {
			for _, name := range []string{"clone", "unshare"} {
				refuse(name, specs.LinuxSeccompArg{Index: 0, Value: bit, ValueTwo: bit, Op: specs.OpMaskedEqual})
			}
		}
	}
	for _, family := range []uint64{unix.AF_VSOCK, unix.AF_ALG} {
		refuse("socket", specs.LinuxSeccompArg{Index: 0, Value: family, Op: specs.OpEqualTo})
	}
	for _, typing := range []uint64{unix.TIOCSTI, unix.TIOCLINUX} {
		// The kernel reads 32 bits of the request.
		refuse("ioctl", specs.LinuxSeccompArg{Index: 1, Value: 0xffffffff, ValueTwo: typing, Op: specs.OpMaskedEqual})
	}
	return s
}
