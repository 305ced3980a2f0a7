package launch

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Kind is the type of a mount.
type Kind string

// The kinds of mounts. Kernel file systems are always opened inside the container's namespaces.
const (
	Bind    Kind = "bind"
	Overlay Kind = "overlay"
	Memory  Kind = "memory" // a MemoryVolume of the Pod; Source is its name
	Tmpfs   Kind = "tmpfs"
	Proc    Kind = "proc"
	Sysfs   Kind = "sysfs"
	Devpts  Kind = "devpts"
	Mqueue  Kind = "mqueue"
	Cgroup2 Kind = "cgroup2"
)

// Mount is one mount of a container. Opening it yields a detached mount, which is attached under the container's
// root afterwards: nothing ever shows up in the machine's mount table.
type Mount struct {
	Kind   Kind
	Target string // absolute, inside the container
	Source string `json:",omitempty"` // Bind: a path of the machine
	Lower  string `json:",omitempty"` // Overlay
	Upper  string `json:",omitempty"`
	Work   string `json:",omitempty"`
	// UserXattr keeps overlay's own attributes in user.*: needed inside a user namespace.
	UserXattr bool `json:",omitempty"`
	// Options of the file system (mode, size, …).
	Options map[string]string `json:",omitempty"`
	// Dirs are made in a Tmpfs before it becomes read-only: the mount points of what comes on it.
	Dirs []string `json:",omitempty"`
	// File is true when the target is a file and not a directory (Bind).
	File bool `json:",omitempty"`
	// SubPath is resolved inside Source, never leaving it.
	SubPath  string `json:",omitempty"`
	ReadOnly bool   `json:",omitempty"`
	Exec     bool   `json:",omitempty"`
	// Device allows device files (the single nodes of /dev).
	Device bool `json:",omitempty"`
	// Optional mounts may fail: the machine may not offer them to a user namespace.
	Optional bool `json:",omitempty"`
	// Passed says that the mount was opened by the agent and comes as the next file of the request.
	Passed bool `json:",omitempty"`
}

// NeedsRights reports whether the agent should open the mount when it has more rights than the container.
func (m Mount) NeedsRights() bool { return m.Kind == Bind || m.Kind == Overlay }

func (m Mount) attributes() uint64 {
	attr := uint64(unix.MOUNT_ATTR_NOSUID)
	if !m.Device {
		attr |= unix.MOUNT_ATTR_NODEV
	}
	if !m.Exec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	if m.ReadOnly {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	return attr
}

// Open returns a detached mount. Paths of the machine are taken under prefix.
func (m Mount) Open(prefix string) (int, error) {
	fd, err := m.open(prefix)
	if err != nil {
		return -1, fmt.Errorf("mount %s on %s: %w", m.Kind, m.Target, err)
	}
	return fd, nil
}

func (m Mount) open(prefix string) (int, error) {
	switch m.Kind {
	case Bind, Memory:
		return m.openTree(prefix)
	case Overlay:
		options := [][2]string{{"lowerdir", escapeLower(prefix + m.Lower)}}
		if m.Upper != "" {
			options = append(options, [2]string{"upperdir", prefix + m.Upper}, [2]string{"workdir", prefix + m.Work})
		}
		flags := []string{}
		if m.UserXattr {
			flags = append(flags, "userxattr")
		}
		if m.Upper != "" {
			// The upper directory is thrown away with the container: syncing it to the disk is wasted.
			flags = append(flags, "volatile")
		}
		return m.openFS("overlay", options, flags)
	default:
		var options [][2]string
		for k, v := range m.Options {
			options = append(options, [2]string{k, v})
		}
		if len(m.Dirs) > 0 {
			return m.openFilled(options)
		}
		return m.openFS(string(m.Kind), options, nil)
	}
}

// openFilled opens a file system, makes Dirs in it, and only then sets the attributes, which can forbid that.
func (m Mount) openFilled(options [][2]string) (int, error) {
	fd, err := Mount{}.openFS(string(m.Kind), options, nil)
	if err != nil {
		return -1, err
	}
	for _, dir := range m.Dirs {
		if err := unix.Mkdirat(fd, dir, 0o755); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("make the directory %s: %w", dir, err)
		}
	}
	if err := m.setAttributes(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (m Mount) setAttributes(fd int) error {
	attr := unix.MountAttr{Attr_set: m.attributes()}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("set attributes: %w", err)
	}
	return nil
}

func (m Mount) openTree(prefix string) (int, error) {
	source := prefix + m.Source
	if m.Kind == Memory {
		source = MemoryVolumeDir + "/" + m.Source
	}
	dir := unix.AT_FDCWD
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE)
	if m.SubPath != "" {
		fd, err := openBeneath(source, m.SubPath)
		if err != nil {
			return -1, fmt.Errorf("subPath %q: %w", m.SubPath, err)
		}
		defer unix.Close(fd)
		dir, source = fd, ""
		flags |= unix.AT_EMPTY_PATH
	}
	tree, err := unix.OpenTree(dir, source, flags)
	if err != nil {
		return -1, err
	}
	if err := m.setAttributes(tree); err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

func (m Mount) openFS(name string, options [][2]string, flags []string) (int, error) {
	fs, err := unix.Fsopen(name, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fsError(fs, fmt.Errorf("option %s: %w", o[0], err))
		}
	}
	for _, f := range flags {
		if err := unix.FsconfigSetFlag(fs, f); err != nil {
			return -1, fsError(fs, fmt.Errorf("option %s: %w", f, err))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fsError(fs, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(m.attributes()))
	if err != nil {
		return -1, fsError(fs, err)
	}
	return fd, nil
}

// fsError adds what the kernel wrote about the failure to the file system context.
func fsError(fs int, err error) error {
	buf := make([]byte, 1024)
	n, readErr := unix.Read(fs, buf)
	if readErr != nil || n <= 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, bytes.TrimSpace(buf[:n]))
}

// escapeLower protects the separator of overlay's list of lower directories.
func escapeLower(path string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(path)
}

// openBeneath opens sub inside the directory root, following no link out of it.
func openBeneath(root, sub string) (int, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	return unix.Openat2(fd, sub, &how)
}

// Made is called for everything that EnsureInRoot creates, with the directory that it lies in.
type Made func(dir int, name string) error

// EnsureInRoot opens path inside the directory root (links are resolved as if root were "/"), creating directories,
// or with file true an empty last element, where nothing is. made may be nil. The descriptor is O_PATH.
func EnsureInRoot(root int, path string, file bool, made Made) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if fd, err := unix.Openat2(root, path, &how); !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	parent, name := split(path)
	if name == "" || name == "." || name == ".." {
		return -1, unix.ENOENT
	}
	dir, err := EnsureInRoot(root, parent, false, made)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	if file {
		var fd int
		fd, err = unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_WRONLY, 0o644)
		if err == nil {
			unix.Close(fd)
		}
	} else {
		err = unix.Mkdirat(dir, name, 0o755)
	}
	if err == nil && made != nil {
		err = made(dir, name)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return unix.Openat2(root, path, &how)
}

func split(path string) (dir, name string) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return ".", path
	}
	if i == 0 {
		return "/", path[1:]
	}
	return path[:i], path[i+1:]
}

// MemoryVolumeDir is where the launcher keeps the Pod's memory volumes in its own mount namespace.
const MemoryVolumeDir = "/volumes"
