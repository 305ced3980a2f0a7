package files

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/users"
)

// maxCompose bounds the body of a compose request.
const maxCompose = 1 << 20

// Compose serves POST /files/compose: it joins files in order into one and removes them. The destination appears, or is
// replaced, only when it is whole.
func (s *Service) Compose(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCompose)).Decode(&body); err != nil {
		httperror.Write(w, httperror.New(http.StatusBadRequest, "the body cannot be read: %v", err))
		return
	}
	if len(body.Sources) == 0 || body.Destination == "" {
		httperror.Write(w, httperror.New(http.StatusBadRequest, "source_paths and destination must not be empty"))
		return
	}
	user, err := s.user(body.Username)
	if err != nil {
		httperror.Write(w, err)
		return
	}
	composed, err := s.compose(user, body.Sources, body.Destination)
	if err != nil {
		httperror.Write(w, err)
		return
	}
	answer(w, composed)
}

func (s *Service) compose(user users.User, sources []string, destination string) (entry, error) {
	destination, err := s.resolve(destination, user)
	if err != nil {
		return entry{}, err
	}
	resolved := make([]string, len(sources))
	for i, source := range sources {
		if resolved[i], err = s.resolve(source, user); err != nil {
			return entry{}, err
		}
	}
	err = user.Act(func() error { return join(resolved, destination) })
	if err != nil {
		return entry{}, err
	}
	return entry{Name: filepath.Base(destination), Path: destination, Type: "file"}, nil
}

func join(sources []string, destination string) error {
	if info, err := os.Stat(destination); err == nil && info.IsDir() {
		return httperror.New(http.StatusBadRequest, "path is a directory: %s", destination)
	}
	dir := filepath.Dir(destination)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return failure(dir, err)
	}
	whole, err := os.CreateTemp(dir, ".compose-*")
	if err != nil {
		return failure(dir, err)
	}
	defer os.Remove(whole.Name()) // after the rename it is not there
	defer whole.Close()
	for _, source := range sources {
		part, info, err := openRegular(source, os.O_RDONLY)
		if err != nil {
			return err
		}
		content, err := contents(source, info, part)
		if err == nil {
			if _, err = io.Copy(whole, content); err != nil {
				err = failure(destination, err)
			}
		}
		part.Close()
		if err != nil {
			return err
		}
	}
	if err := errors.Join(whole.Chmod(0o644), whole.Close(), os.Rename(whole.Name(), destination)); err != nil {
		return failure(destination, err)
	}
	for _, source := range sources {
		if source == destination {
			continue
		}
		if err := os.Remove(source); err != nil && !errors.Is(err, os.ErrNotExist) {
			return failure(source, err)
		}
	}
	return nil
}
