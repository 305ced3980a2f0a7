package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/access"
	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/users"
)

// Upload serves POST /files: a multipart form whose parts are files, or one raw body.
func (s *Service) Upload(w http.ResponseWriter, r *http.Request) {
	written, err := s.upload(r)
	if err != nil {
		httperror.Write(w, err)
		return
	}
	answer(w, written)
}

func (s *Service) upload(r *http.Request) ([]entry, error) {
	query, user, err := s.open(r, access.Write)
	if err != nil {
		return nil, err
	}
	metadata, err := requestMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, httperror.New(http.StatusBadRequest, "the Content-Type %q cannot be read: send multipart/form-data or application/octet-stream", r.Header.Get("Content-Type"))
	}
	body, err := decoded(r)
	if err != nil {
		return nil, err
	}
	up := upload{service: s, user: user, metadata: metadata}
	switch {
	case strings.HasPrefix(kind, "multipart/"):
		return up.form(body, parameters["boundary"], query.Get("path"))
	case kind == "application/octet-stream":
		if query.Get("path") == "" {
			return nil, httperror.New(http.StatusBadRequest, "path is missing: an application/octet-stream upload names its file in the query")
		}
		one, err := up.file(query.Get("path"), body)
		if err != nil {
			return nil, err
		}
		return []entry{one}, nil
	}
	return nil, httperror.New(http.StatusBadRequest, "unsupported Content-Type %q: send multipart/form-data or application/octet-stream", kind)
}

// upload is one request's user and the metadata of its files.
type upload struct {
	service  *Service
	user     users.User
	metadata map[string]string
}

// file writes content to path, with parents, and gives it the metadata.
func (u upload) file(path string, content io.Reader) (entry, error) {
	path, err := u.service.resolve(path, u.user)
	if err != nil {
		return entry{}, err
	}
	var file *os.File
	err = u.user.Act(func() (err error) {
		file, err = create(path)
		return err
	})
	if err != nil {
		return entry{}, err
	}
	defer file.Close()
	source := &tracked{Reader: content}
	if _, err := io.Copy(file, source); err != nil {
		if source.err != nil {
			return entry{}, httperror.New(http.StatusBadRequest, "the body of '%s' broke off: %v", path, source.err)
		}
		return entry{}, failure(path, err)
	}
	if err := u.user.Act(func() error { return replaceMetadata(file, u.metadata) }); err != nil {
		return entry{}, fmt.Errorf("error setting the metadata of '%s': %w", path, err)
	}
	if err := file.Close(); err != nil {
		return entry{}, failure(path, err)
	}
	return entry{Name: filepath.Base(path), Path: path, Type: "file", Metadata: u.metadata}, nil
}

// create opens path for writing as the calling thread's user and makes the directories above it.
func create(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		var where *os.PathError
		if errors.Is(err, unix.ENOTDIR) && errors.As(err, &where) {
			return nil, fmt.Errorf("error ensuring directories: path is a file: %s", where.Path)
		}
		return nil, failure(filepath.Dir(path), err)
	}
	file, _, err := openRegular(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	return file, err
}

// tracked remembers whether the reading side failed.
type tracked struct {
	io.Reader
	err error
}

func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if err != nil && err != io.EOF {
		t.err = err
	}
	return n, err
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(body)
}
