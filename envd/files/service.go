// Package files serves GET /files, POST /files and POST /files/compose. All work on disk is done with the rights of
// the user that the request names.
package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/access"
	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/paths"
	"navix.sh/agentbox/envd/state"
	"navix.sh/agentbox/envd/users"
)

// Service serves the file routes.
type Service struct{ state *state.State }

// New serves files under the settings of s.
func New(s *state.State) *Service { return &Service{state: s} }

// entry is one file in an answer.
type entry struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// open authorises a request and finds its user, before any of its body is read.
func (s *Service) open(r *http.Request, operation string) (url.Values, users.User, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, users.User{}, httperror.New(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	if err := access.Files(s.state, r.Header, query, operation, time.Now()); err != nil {
		return nil, users.User{}, err
	}
	user, err := s.user(query.Get("username"))
	return query, user, err
}

func (s *Service) user(name string) (users.User, error) {
	user, err := s.state.User(name)
	if err != nil {
		return users.User{}, httperror.New(http.StatusUnauthorized, "%v", err)
	}
	return user, nil
}

func (s *Service) resolve(path string, user users.User) (string, error) {
	resolved, err := paths.Resolve(path, user.Home, s.state.Settings().DefaultWorkdir)
	if err != nil {
		return "", httperror.New(http.StatusBadRequest, "path %q: %v", path, err)
	}
	return resolved, nil
}

// openRegular opens a file as the calling thread's user, without waiting for the other end of a planted pipe.
func openRegular(path string, flags int) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0o666)
	if err != nil {
		return nil, nil, failure(path, err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = failure(path, err)
	case info.IsDir():
		err = httperror.New(http.StatusBadRequest, "path '%s' is a directory", path)
	case !info.Mode().IsRegular():
		err = httperror.New(http.StatusBadRequest, "path '%s' is not a regular file but %s", path, info.Mode().Type())
	default:
		return file, info, nil
	}
	file.Close()
	return nil, nil, err
}

// Files of /proc and /sys say that they hold nothing, or a page, whatever they hold; some have no end.
const (
	pageSize = 4 << 10
	// maxUnsized bounds what is read of a file whose size is not to be believed.
	maxUnsized = 16 << 20
)

// contents returns what an open file holds. One whose size is not to be believed is read to its end, as the calling
// thread's user: files of /proc check rights at every read.
func contents(path string, info fs.FileInfo, file *os.File) (io.ReadSeeker, error) {
	if info.Size() > pageSize {
		return file, nil
	}
	var held bytes.Buffer
	part := make([]byte, 64<<10) // some files of /proc are read in whole records only
	for held.Len() <= maxUnsized {
		n, err := file.Read(part)
		held.Write(part[:n])
		if errors.Is(err, io.EOF) {
			return bytes.NewReader(held.Bytes()), nil
		}
		if err != nil {
			return nil, failure(path, err)
		}
	}
	return nil, httperror.New(http.StatusBadRequest,
		"path '%s' does not say how long it is and does not end within %d MiB; read a part of it with a command, such as head -c", path, maxUnsized>>20)
}

// failure words an error of the file system.
func failure(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return httperror.New(http.StatusNotFound, "path '%s' does not exist", path)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return httperror.New(http.StatusForbidden, "permission denied: path '%s' is out of bounds for this user (%v)", path, errors.Unwrap(err))
	case errors.Is(err, unix.EISDIR):
		return httperror.New(http.StatusBadRequest, "path is a directory: %s", path)
	case errors.Is(err, unix.ELOOP):
		return httperror.New(http.StatusBadRequest, "path '%s' is a loop of links", path)
	case errors.Is(err, unix.ENXIO):
		return httperror.New(http.StatusBadRequest, "path '%s' is not a regular file", path)
	case errors.Is(err, unix.ENAMETOOLONG):
		return httperror.New(http.StatusBadRequest, "path '%s' is too long", path)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return httperror.New(http.StatusInsufficientStorage, "not enough disk space available")
	}
	return err
}
