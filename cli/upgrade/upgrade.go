// Package upgrade replaces the running abx with a release that it has verified. The binary is touched once, by a
// rename, after everything else has succeeded.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"golang.org/x/mod/semver"

	"navix.sh/agentbox/cli/clierr"
)

// Base is the address releases are downloaded from and PublicKey the release key (base64 of its PEM). The release
// builder sets both; AGBX_CLI_BASE and AGBX_CLI_PUBLIC_KEY (a PEM file) override them.
var (
	Base      string
	PublicKey string
)

// Request is one run of `abx upgrade`.
type Request struct {
	// Current is the running version; a build from source has "dev" or what git describe says.
	Current string
	// Version pins the release; empty takes the latest.
	Version string
	// Check only says what is there.
	Check bool
	// Reinstall replaces the binary even when the version is the same.
	Reinstall bool
	// AllowDowngrade accepts an older release than the running one.
	AllowDowngrade bool
}

// Result says what was found and done.
type Result struct {
	Current   string `json:"current"`
	Available string `json:"available"`
	// Newer is true when the release is newer than the running version.
	Newer bool `json:"newer"`
	// Installed is the path of the replaced binary; empty when nothing was installed.
	Installed string `json:"installed,omitempty"`
}

// check refuses what no release could satisfy.
func (r Request) check() error {
	if !isRelease(r.Current) {
		return clierr.New(clierr.Unsupported, "this abx is a build from source (%s), which has no release to follow", r.Current).
			Hint("install a release with install.sh", "or build again from a newer checkout: make build")
	}
	if r.Version == "" || semver.IsValid(r.Version) {
		return nil
	}
	e := clierr.New(clierr.InvalidValue, "--version %q is not a version", r.Version).Hint("for instance: abx upgrade --version v1.2.3")
	if with := "v" + r.Version; semver.IsValid(with) {
		e = e.Choices(nil, with)
	}
	return e
}

// described is what `git describe --dirty` says of a checkout that is not exactly a tag. Semver would read it as older
// than the tag, though it is newer.
var described = regexp.MustCompile(`(-[0-9]+-g[0-9a-f]+|-dirty)$`)

// isRelease tells a release from a build from source.
func isRelease(version string) bool {
	return semver.IsValid(version) && !described.MatchString(version)
}

// Upgrade finds a release, verifies it and puts it in the place of the executable at path. Every failure leaves the
// executable as it was.
func Upgrade(ctx context.Context, s Source, path string, r Request) (Result, error) {
	result := Result{Current: r.Current}
	if err := r.check(); err != nil {
		return result, err
	}
	release, err := s.open(ctx, r.Version)
	if err != nil {
		return result, err
	}
	result.Available = release.version
	order := semver.Compare(release.version, r.Current)
	result.Newer = order > 0
	switch {
	case r.Check, order == 0 && !r.Reinstall:
		return result, nil
	case order < 0 && !r.AllowDowngrade:
		return result, clierr.New(clierr.Conflict, "%s is older than the running %s", release.version, r.Current).
			Hint("abx upgrade --allow-downgrade installs it all the same")
	}
	binary, err := release.download(ctx, binaryName())
	if err != nil {
		return result, err
	}
	if err := replace(path, binary); err != nil {
		return result, err
	}
	result.Installed = path
	return result, nil
}

// binaryName is this platform's file in a release.
func binaryName() string {
	name := "abx-" + runtime.GOOS + "-" + runtime.GOARCH
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return name
}

// Executable is the file that an upgrade replaces: the running program with links resolved.
func Executable() (string, error) {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", clierr.New(clierr.Internal, "cannot tell where this abx is: %v", err).Because(err)
	}
	return path, nil
}

// replace swaps the file at path for content in one step. On Windows a running program cannot be overwritten, so it is
// moved aside first and back again if the swap fails.
func replace(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".abx-upgrade-*")
	if err != nil {
		return notWritable(path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
			err = notWritable(path, err)
		}
	}()
	if _, err = tmp.Write(content); err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err = os.Chmod(tmp.Name(), 0o755); err != nil {
		return err
	}
	if runtime.GOOS != "windows" {
		return os.Rename(tmp.Name(), path)
	}
	aside := path + ".old"
	_ = os.Remove(aside)
	if err = os.Rename(path, aside); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return errors.Join(err, os.Rename(aside, path))
	}
	return nil
}

func notWritable(path string, err error) error {
	e := clierr.New(clierr.Unsupported, "cannot replace %s: %v", path, err).Because(err)
	if errors.Is(err, fs.ErrPermission) {
		e.Hint("run abx upgrade as the owner of " + filepath.Dir(path))
	}
	return e.Hint("the old abx is untouched")
}

// Print says in words what came of a request.
func Print(w io.Writer, r Result, asked Request) {
	order := semver.Compare(r.Available, r.Current)
	switch {
	case r.Installed != "" && order == 0:
		fmt.Fprintf(w, "installed %s again: %s\n", r.Available, r.Installed)
	case r.Installed != "" && order < 0:
		fmt.Fprintf(w, "downgraded %s from %s to %s\n", r.Installed, r.Current, r.Available)
	case r.Installed != "":
		fmt.Fprintf(w, "upgraded %s from %s to %s\n", r.Installed, r.Current, r.Available)
	case r.Newer:
		command := "abx upgrade"
		if asked.Version != "" {
			command += " --version " + asked.Version
		}
		fmt.Fprintf(w, "%s is available, this is %s\nhint: %s\n", r.Available, r.Current, command)
	case order == 0 && asked.Version == "":
		fmt.Fprintf(w, "%s is the latest\n", r.Current)
	case order == 0:
		// Whether there is a later one was not asked.
		fmt.Fprintf(w, "this is %s already\nhint: abx upgrade --check looks for the latest, --force installs this one again\n", r.Current)
	default:
		fmt.Fprintf(w, "the release is %s, this is %s\n", r.Available, r.Current)
	}
}
