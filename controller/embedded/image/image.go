// Package image provides the root file systems of sandboxes: OCI images from registries, unpacked once, and two
// built-in ones made from the machine itself.
package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

const builtinRegistry = "agentbox.local"

// The built-in images. They may carry any tag.
const (
	// Host is the machine's own programs, read-only, with private home and temporary directories.
	Host = "agentbox.local/host"
	// Envd holds /envd; it is meant to be mounted as an image volume.
	Envd = "agentbox.local/envd"
)

// Image is an image that is ready to be run.
type Image struct {
	// Name is the reference that was asked for.
	Name string
	// ID names the content: "sha256:…" of the manifest, or of the tree of a built-in image.
	ID string
	// Tree is the directory with the unpacked files.
	Tree string
	// Machine are paths of the machine that are shown read-only on top of Tree.
	Machine []string
	Config  Config
}

// Config is what an image says about the process to run.
type Config struct {
	Entrypoint []string
	Cmd        []string
	Env        []string
	WorkingDir string
	// User is "", "name", "uid", each optionally with ":group".
	User string
}

// The reasons of an Error, as a kubelet reports them.
const (
	ReasonInvalidName = "InvalidImageName"
	ReasonPull        = "ErrImagePull"
	ReasonNeverPull   = "ErrImageNeverPull"
)

// Error is an image that cannot be had. Retry is false when trying again cannot help.
type Error struct {
	Reason string
	Retry  bool
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Store keeps images in a directory. It is safe for concurrent use.
type Store struct {
	dir  string
	ids  runtime.IDs
	envd string

	mu     sync.Mutex
	pulls  map[string]*pull
	images map[string]*Image // by ID, and the built-in ones by name
}

// NewStore opens the image store in dir. envd is the path of the daemon's binary, from which the built-in Envd image
// is made when it is asked for.
func NewStore(dir string, ids runtime.IDs, envd string) (*Store, error) {
	// Others may pass through: the users of sandboxes are not the owner of this directory.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, ids: ids, envd: envd, pulls: map[string]*pull{}, images: map[string]*Image{}}
	// A crash in the middle of an unpacking or a removal leaves a temporary directory.
	leftovers, err := filepath.Glob(filepath.Join(dir, tmpPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, l := range leftovers {
		if err := namespaces.RemoveTree(l); err != nil {
			return nil, err
		}
	}
	return s, nil
}

const tmpPrefix = "tmp-"

// Ensure returns the image, pulling and unpacking it when the policy says so or it is not here. Errors are *Error.
func (s *Store) Ensure(ctx context.Context, ref string, policy corev1.PullPolicy, keys authn.Keychain) (*Image, error) {
	img, err := s.Local(ref, policy)
	if img != nil || err != nil {
		return img, err
	}
	return s.pull(ctx, ref, keys)
}

// Local returns the image when no registry has to be asked, and nil when one has to. Errors are *Error.
func (s *Store) Local(ref string, policy corev1.PullPolicy) (*Image, error) {
	if repository, rest, ok := strings.Cut(ref, "/"); ok && repository == builtinRegistry {
		switch untagged, _, _ := strings.Cut(rest, ":"); repository + "/" + untagged {
		case Host:
			return s.builtin(ref, s.buildHost)
		case Envd:
			return s.builtin(ref, s.buildEnvd)
		}
		return nil, &Error{Reason: ReasonInvalidName, Err: fmt.Errorf("image %q: the built-in images are %s and %s", ref, Host, Envd)}
	}
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return nil, &Error{Reason: ReasonInvalidName, Err: fmt.Errorf("image %q: %w", ref, err)}
	}
	if policy == "" {
		policy = DefaultPolicy(parsed)
	}
	if policy == corev1.PullAlways {
		return nil, nil
	}
	img, err := s.cached(parsed)
	switch {
	case err == nil:
		img.Name = ref
		return img, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, &Error{Reason: ReasonPull, Retry: true, Err: err}
	case policy == corev1.PullNever:
		return nil, &Error{Reason: ReasonNeverPull, Retry: true, Err: fmt.Errorf("image %q is not on this node, and imagePullPolicy is Never", ref)}
	}
	return nil, nil
}

// DefaultPolicy is what Kubernetes assumes when a container names no policy.
func DefaultPolicy(ref name.Reference) corev1.PullPolicy {
	if tag, ok := ref.(name.Tag); ok && tag.TagStr() == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func (s *Store) builtin(ref string, build func() (*Image, error)) (*Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if img := s.images[ref]; img != nil {
		return img, nil
	}
	img, err := build()
	if err != nil {
		return nil, &Error{Reason: ReasonPull, Retry: true, Err: fmt.Errorf("built-in image %s: %w", ref, err)}
	}
	img.Name = ref
	s.images[ref] = img
	return img, nil
}

// adopt moves a finished tree to its final name. A tree of the same content may be there already.
func (s *Store) adopt(tmp, final string) error {
	err := os.Rename(tmp, final)
	if err == nil {
		return nil
	}
	if _, statErr := os.Stat(final); statErr == nil {
		return os.RemoveAll(tmp)
	}
	return err
}
