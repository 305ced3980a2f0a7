package process

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/paths"
	"navix.sh/agentbox/envd/users"
)

// command is what to run, as whom and where, ready for the kernel.
type command struct {
	path string
	argv []string
	env  []string
	cwd  string
	user users.User
}

// environment merges what a process of user gets; later maps win.
func environment(user users.User, template, globals, request map[string]string) ([]string, error) {
	env := maps.Clone(template)
	if env == nil {
		env = map[string]string{}
	}
	env["HOME"], env["USER"], env["LOGNAME"] = user.Home, user.Name, user.Name
	maps.Copy(env, globals)
	maps.Copy(env, request)
	list := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(env[key], 0) {
			return nil, fmt.Errorf("the environment variable %q cannot be set: a name is not empty and holds no '=', and neither name nor value holds a NUL byte", key)
		}
		list = append(list, key+"="+env[key])
	}
	return list, nil
}

// workdir resolves and checks the directory a process starts in, with the user's own rights. Accounts of images often
// have a home that does not exist or is closed to them; where nobody asked for it, the root directory stands in.
func workdir(user users.User, requested, fallback string) (string, error) {
	dir, err := paths.Resolve(requested, user.Home, fallback)
	if err != nil {
		return "", err
	}
	err = user.Act(func() error { return enterable(dir) })
	if err != nil && requested == "" && fallback == "" {
		return "/", nil
	}
	return dir, err
}

func enterable(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cwd '%s' does not exist", dir)
	case err == nil && !info.IsDir():
		return fmt.Errorf("cwd '%s' is not a directory", dir)
	case err == nil:
		err = unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS)
	}
	if err != nil {
		return fmt.Errorf("cwd '%s' cannot be entered: %w", dir, err)
	}
	return nil
}

// executable finds name as a shell of the user would: in the child's PATH, or relative to its working directory.
func executable(user users.User, name, cwd string, env []string) (path string, err error) {
	if name == "" {
		return "", errors.New("cmd is empty: name the program to run")
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(cwd, name)
		}
		return name, nil // the exec itself says what is wrong with it
	}
	searched := lookupEnv(env, "PATH")
	err = user.Act(func() error {
		for _, dir := range filepath.SplitList(searched) {
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(cwd, dir)
			}
			candidate := filepath.Join(dir, name)
			info, err := os.Stat(candidate)
			if err == nil && info.Mode().IsRegular() && unix.Faccessat(unix.AT_FDCWD, candidate, unix.X_OK, unix.AT_EACCESS) == nil {
				path = candidate
				return nil
			}
		}
		return fmt.Errorf("exec: %q: executable file not found in $PATH (%s)", name, searched)
	})
	return path, err
}

func lookupEnv(env []string, key string) string {
	for _, entry := range env {
		if value, found := strings.CutPrefix(entry, key+"="); found {
			return value
		}
	}
	return ""
}

// attributes are what the child is before its first instruction: its own session (and so its own process group), the
// user's ids, and its terminal when it has one.
func (c command) attributes(files []*os.File, terminal bool) *syscall.ProcAttr {
	sys := &syscall.SysProcAttr{Setsid: true, Setctty: terminal}
	if os.Geteuid() != c.user.UID {
		sys.Credential = c.user.Credential()
	}
	attr := &syscall.ProcAttr{Dir: c.cwd, Env: c.env, Sys: sys}
	for _, file := range files {
		attr.Files = append(attr.Files, file.Fd())
	}
	return attr
}
