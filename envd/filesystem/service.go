// Package filesystem lists, changes and watches directories: the Connect service filesystem.Filesystem. All work on
// disk is done with the rights of the calling user.
package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/paths"
	"navix.sh/agentbox/envd/rpc"
	spec "navix.sh/agentbox/envd/spec/filesystem"
	"navix.sh/agentbox/envd/spec/filesystem/filesystemconnect"
	"navix.sh/agentbox/envd/state"
	"navix.sh/agentbox/envd/users"
)

// Service implements filesystem.Filesystem with E2B's codes.
type Service struct {
	state    *state.State
	watchers watchers
}

var _ filesystemconnect.FilesystemHandler = (*Service)(nil)

// NewService serves files under the settings of s.
func NewService(s *state.State) *Service { return &Service{state: s} }

// target is a resolved path and who asks for it.
type target struct {
	path string
	user users.User
}

// caller is what every request has.
type caller interface{ Header() http.Header }

// resolve finds the user of a request and makes its path absolute.
func (s *Service) resolve(req caller, path string) (target, error) {
	user, err := rpc.User(s.state, req.Header())
	if err != nil {
		return target{}, err
	}
	resolved, err := paths.Resolve(path, user.Home, s.state.Settings().DefaultWorkdir)
	if err != nil {
		return target{}, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %q: %w", path, err))
	}
	return target{path: resolved, user: user}, nil
}

// Stat describes what is at a path.
func (s *Service) Stat(_ context.Context, req *connect.Request[spec.StatRequest]) (*connect.Response[spec.StatResponse], error) {
	at, err := s.resolve(req, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	entry, err := at.describe()
	if err != nil {
		return nil, failure("file", at.path, err)
	}
	return connect.NewResponse(&spec.StatResponse{Entry: entry}), nil
}

// MakeDir makes a directory and those above it.
func (s *Service) MakeDir(_ context.Context, req *connect.Request[spec.MakeDirRequest]) (*connect.Response[spec.MakeDirResponse], error) {
	at, err := s.resolve(req, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	err = at.user.Act(func() error {
		err := makeParents(at.path)
		if err == nil {
			err = os.Mkdir(at.path, 0o755)
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if info, statErr := os.Stat(at.path); statErr == nil && info.IsDir() {
			return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", at.path))
		}
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", at.path))
	})
	if err != nil {
		return nil, failure("path", at.path, err)
	}
	entry, err := at.describe()
	if err != nil {
		return nil, failure("path", at.path, err)
	}
	return connect.NewResponse(&spec.MakeDirResponse{Entry: entry}), nil
}

// Move renames a file or directory, replacing what rename replaces, and makes the directories above its new place.
func (s *Service) Move(_ context.Context, req *connect.Request[spec.MoveRequest]) (*connect.Response[spec.MoveResponse], error) {
	from, err := s.resolve(req, req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	to, err := s.resolve(req, req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	err = from.user.Act(func() error {
		if _, err := os.Lstat(from.path); err != nil {
			return err
		}
		if err := makeParents(to.path); err != nil {
			return err
		}
		return os.Rename(from.path, to.path)
	})
	if err != nil {
		return nil, failure("source file", from.path, err)
	}
	entry, err := to.describe()
	if err != nil {
		return nil, failure("path", to.path, err)
	}
	return connect.NewResponse(&spec.MoveResponse{Entry: entry}), nil
}

// Remove deletes a file or a whole directory; what is not there is already removed.
func (s *Service) Remove(_ context.Context, req *connect.Request[spec.RemoveRequest]) (*connect.Response[spec.RemoveResponse], error) {
	at, err := s.resolve(req, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	err = at.user.Act(func() error { return os.RemoveAll(at.path) })
	if err != nil && !errors.Is(err, unix.ENOTDIR) {
		return nil, failure("path", at.path, err)
	}
	return connect.NewResponse(&spec.RemoveResponse{}), nil
}

// makeParents makes the directories above path.
func makeParents(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if errors.Is(err, unix.ENOTDIR) {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %w", err))
	}
	return err
}

// failure words an error of the file system; what names what was looked for.
func failure(what, path string, err error) error {
	var known *connect.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return rpc.Ended(err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("%s not found: %w", what, err))
	case errors.Is(err, unix.ELOOP):
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("too many links on the way to %s: %w", path, err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("this user may not do that: %w", err))
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("not enough disk space available: %w", err))
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
		return connect.NewError(connect.CodeAlreadyExists, err)
	}
	return connect.NewError(connect.CodeInternal, err)
}
