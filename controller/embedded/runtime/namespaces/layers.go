package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

const (
	upperName  = "upper"
	workName   = "work"
	copiedName = "copied"
)

// TrialPrefix begins the names of the directories in Options.Dir where overlays are tried.
const TrialPrefix = ".overlay-"

// tryOverlay says why containers cannot have overlays whose writable layers are under dir.
func (r *Runtime) tryOverlay(dir string) (err error) {
	tmp, err := os.MkdirTemp(dir, TrialPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, RemoveTree(tmp)) }()
	if !r.ids.Single() {
		return launch.TryOverlay(tmp, false)
	}
	// Only in a user namespace of its own does an ordinary user have the right to mount.
	out, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	process, err := os.StartProcess("/proc/self/fd/"+strconv.Itoa(int(r.launcher.Fd())), []string{"sandbox-init", "overlay", tmp},
		&os.ProcAttr{Env: []string{}, Files: []*os.File{nil, w, nil}, Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}})
	w.Close()
	if err != nil {
		return fmt.Errorf("start the launcher: %w%s", err, namespaceHint(err))
	}
	problem, err := io.ReadAll(io.LimitReader(out, 4096))
	if _, waitErr := process.Wait(); err == nil {
		err = waitErr
	}
	if err == nil && len(problem) > 0 {
		err = errors.New(string(problem))
	}
	return err
}

// Layer is where the files of a container are that it holds for itself, and how many bytes of them are a mere copy of
// its image.
func Layer(podDir, id string) (dir string, copied uint64) {
	dir = containerDir(podDir, id)
	if data, err := os.ReadFile(filepath.Join(dir, copiedName)); err == nil {
		copied, _ = strconv.ParseUint(string(data), 10, 64) // of a copy that was not finished: nothing runs on it
	}
	return dir, copied
}

func containerDir(podDir, id string) string { return filepath.Join(podDir, "containers", id) }

// copyTree copies an image's tree to a directory that does not exist, sharing blocks with it where the file system can,
// and returns how many bytes it holds.
func copyTree(ctx context.Context, from, to string) (bytes uint64, err error) {
	type directory struct {
		path string
		mode fs.FileMode
	}
	var directories []directory // closed up last: one may be read-only
	links := map[uint64]string{}
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		target := filepath.Join(to, path[len(from):])
		if first := links[st.Ino]; first != "" {
			return os.Link(first, target)
		}
		bytes += uint64(st.Blocks) * 512
		switch info.Mode().Type() {
		case fs.ModeDir:
			directories = append(directories, directory{target, info.Mode()})
			err = os.Mkdir(target, 0o700)
		case fs.ModeSymlink:
			var name string
			if name, err = os.Readlink(path); err == nil {
				err = os.Symlink(name, target)
			}
		default:
			if st.Nlink > 1 {
				links[st.Ino] = target
			}
			err = copyFile(path, target)
		}
		if err == nil {
			err = os.Lchown(target, int(st.Uid), int(st.Gid))
		}
		if err == nil && info.Mode().IsRegular() {
			err = errors.Join(os.Chmod(target, info.Mode()), os.Chtimes(target, info.ModTime(), info.ModTime()))
		}
		return err
	})
	for i := len(directories) - 1; i >= 0 && err == nil; i-- {
		err = os.Chmod(directories[i].path, directories[i].mode)
	}
	if err != nil {
		return 0, fmt.Errorf("copy the image: %w", err)
	}
	return bytes, nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	_, err = io.Copy(out, in)
	return err
}
