package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

// maxProcesses is how many processes and threads one container may have.
const maxProcesses = 2048

// unsupported names what a Pod asks for that this node cannot give without giving up isolation.
func unsupported(pod *corev1.Pod) (reason, message string) {
	const configError = "CreateContainerConfigError"
	spec := &pod.Spec
	if spec.HostNetwork || spec.HostPID || spec.HostIPC {
		return configError, "hostNetwork, hostPID and hostIPC are refused on this node: sandboxes share nothing with the machine"
	}
	if s := spec.ShareProcessNamespace; s != nil && *s {
		return configError, "shareProcessNamespace is not supported on this node"
	}
	if len(spec.ReadinessGates) > 0 {
		return configError, "readinessGates are not supported on this node"
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			return configError, fmt.Sprintf("volume %s: hostPath is refused on this node: sandboxes share nothing with the machine; use emptyDir or an image volume", v.Name)
		}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if message := unsupportedContainer(&list[i]); message != "" {
				return configError, fmt.Sprintf("container %s: %s", list[i].Name, message)
			}
		}
	}
	return "", ""
}

func unsupportedContainer(c *corev1.Container) string {
	if c.Lifecycle != nil && (c.Lifecycle.PostStart != nil || c.Lifecycle.PreStop != nil) {
		return "lifecycle hooks are not supported on this node"
	}
	if len(c.VolumeDevices) > 0 {
		return "volumeDevices are refused on this node: sandboxes have no devices of the machine"
	}
	sc := c.SecurityContext
	if sc == nil {
		return ""
	}
	if sc.Privileged != nil && *sc.Privileged {
		return "privileged containers are refused on this node: they would not be isolated from the machine"
	}
	if sc.ProcMount != nil && *sc.ProcMount == corev1.UnmaskedProcMount {
		return "an unmasked /proc is refused on this node"
	}
	if sc.Capabilities != nil {
		for _, name := range sc.Capabilities.Add {
			if n := capability(name); n != "ALL" && !namespaces.AllowedCapability(n) {
				return fmt.Sprintf("the capability %s cannot be granted on this node", name)
			}
		}
	}
	return ""
}

func capability(name corev1.Capability) string {
	return strings.TrimPrefix(strings.ToUpper(string(name)), "CAP_")
}

// capabilities are the default ones with the container's additions and without what it drops.
func capabilities(sc *corev1.SecurityContext) []string {
	set := slices.Clone(namespaces.DefaultCapabilities)
	if sc == nil || sc.Capabilities == nil {
		return set
	}
	for _, name := range sc.Capabilities.Drop {
		n := capability(name)
		set = slices.DeleteFunc(set, func(have string) bool { return n == "ALL" || have == n })
	}
	for _, name := range sc.Capabilities.Add {
		n := capability(name)
		if n == "ALL" {
			set = slices.Clone(namespaces.DefaultCapabilities)
		} else if !slices.Contains(set, n) {
			set = append(set, n)
		}
	}
	return set
}

// config describes a container to the runtime.
func (w *worker) config(ctx context.Context, spec *corev1.Container, img *image.Image) (runtime.ContainerConfig, error) {
	c := runtime.ContainerConfig{
		Name:         spec.Name,
		Root:         runtime.Root{Tree: img.Tree, Machine: img.Machine},
		Capabilities: capabilities(spec.SecurityContext),
		Limits:       limits(&spec.Resources),
		Cwd:          spec.WorkingDir,
		Files:        w.networkFiles(),
	}
	if spec.SecurityContext != nil && spec.SecurityContext.ReadOnlyRootFilesystem != nil {
		c.Root.ReadOnly = *spec.SecurityContext.ReadOnlyRootFilesystem
	}
	if c.Cwd == "" {
		c.Cwd = img.Config.WorkingDir
	}
	var err error
	var home string
	if c.User, home, err = w.user(spec, img); err != nil {
		return c, err
	}
	if c.Mounts, err = w.mounts(spec); err != nil {
		return c, err
	}
	env, err := w.env(ctx, spec, img, home)
	if err != nil {
		return c, err
	}
	c.Env = env.list()
	c.Args = command(spec, &img.Config, env.lookup)
	if len(c.Args) == 0 {
		return c, fmt.Errorf("no command: the container names none, and neither does the image %s", img.Name)
	}
	return c, nil
}

// command puts entry point and arguments together as Kubernetes does: a command replaces both of the image.
func command(spec *corev1.Container, img *image.Config, lookup func(string) (string, bool)) []string {
	entry, args := img.Entrypoint, img.Cmd
	expanded := func(list []string) []string {
		out := make([]string, len(list))
		for i, s := range list {
			out[i] = expand(s, lookup)
		}
		return out
	}
	if len(spec.Command) > 0 {
		entry, args = expanded(spec.Command), nil
	}
	if len(spec.Args) > 0 {
		args = expanded(spec.Args)
	}
	return slices.Concat(entry, args)
}

// user settles who a container runs as. With one user per sandbox that user gets the wanted number.
func (w *worker) user(spec *corev1.Container, img *image.Image) (runtime.User, string, error) {
	var uid, gid *int64
	var nonRoot *bool
	var extra []int64
	if sc := w.pod.Spec.SecurityContext; sc != nil {
		uid, gid, nonRoot, extra = sc.RunAsUser, sc.RunAsGroup, sc.RunAsNonRoot, sc.SupplementalGroups
		if sc.FSGroup != nil {
			extra = append(slices.Clone(extra), *sc.FSGroup)
		}
	}
	if sc := spec.SecurityContext; sc != nil {
		if sc.RunAsUser != nil {
			uid = sc.RunAsUser
		}
		if sc.RunAsGroup != nil {
			gid = sc.RunAsGroup
		}
		if sc.RunAsNonRoot != nil {
			nonRoot = sc.RunAsNonRoot
		}
	}
	who := img.Config.User
	if uid != nil {
		who = fmt.Sprint(*uid)
	}
	user, home, err := img.LookupUser(who)
	if err != nil {
		return user, "", err
	}
	if gid != nil {
		user.GID = uint32(*gid)
	}
	for _, g := range extra {
		user.Groups = append(user.Groups, uint32(g))
	}
	if nonRoot != nil && *nonRoot && user.UID == 0 {
		return user, "", fmt.Errorf("container has runAsNonRoot and image will run as root")
	}
	return user, home, nil
}

func limits(r *corev1.ResourceRequirements) runtime.Limits {
	l := runtime.Limits{
		MemoryBytes: r.Limits.Memory().Value(),
		CPUMillis:   r.Limits.Cpu().MilliValue(),
		Processes:   maxProcesses,
	}
	shares := r.Requests.Cpu().MilliValue()
	if shares == 0 {
		shares = l.CPUMillis
	}
	l.CPUShares = shares * 1024 / 1000
	return l
}

func (w *worker) hostAliases() string {
	var b strings.Builder
	for _, a := range w.pod.Spec.HostAliases {
		b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, " ") + "\n")
	}
	return b.String()
}

// networkFiles are the files about names and addresses that every container gets.
func (w *worker) networkFiles() map[string]string {
	name := hostname(w.state.Name)
	return map[string]string{
		"/etc/hostname":    name + "\n",
		"/etc/hosts":       "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" + w.state.IP + "\t" + name + "\n" + w.hostAliases(),
		"/etc/resolv.conf": w.agent.network.ResolvConf(w.state.Network),
	}
}
