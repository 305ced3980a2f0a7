package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"
)

const (
	recordName = "image.json"
	tagPrefix  = "tag-"
)

// pull serialises the unpacking of one image; its channel holds one token.
type pull struct {
	token chan struct{}
	users int
}

// retryBackoff is short: a Pod's status shows the failure at once, and the agent tries again by itself.
var retryBackoff = remote.Backoff{Duration: 100 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 2}

// saved is what is kept beside an unpacked tree.
type saved struct {
	Digest string `json:"digest"`
	Config Config `json:"config"`
}

// cached returns what an earlier pull of the reference left. The error is os.ErrNotExist when there is none.
func (s *Store) cached(ref name.Reference) (*Image, error) {
	digest := ref.Identifier()
	if _, ok := ref.(name.Digest); !ok {
		data, err := os.ReadFile(s.tagPath(ref))
		if err != nil {
			return nil, err
		}
		digest = strings.TrimSpace(string(data))
	}
	return s.open(digest)
}

func (s *Store) open(digest string) (*Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	img := s.images[digest]
	if img == nil {
		dir := s.imageDir(digest)
		data, err := os.ReadFile(s.recordPath(digest))
		if err != nil {
			return nil, err
		}
		var meta saved
		if err := json.Unmarshal(data, &meta); err != nil {
			return nil, fmt.Errorf("the record of image %s is damaged: %w; delete %s", digest, err, dir)
		}
		img = &Image{ID: meta.Digest, Tree: filepath.Join(dir, "tree"), Config: meta.Config}
		s.images[digest] = img
	}
	named := *img // every caller has its own name for it
	return &named, nil
}

func (s *Store) imageDir(digest string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(digest, ":", "-"))
}

// recordPath is the file about an image; it was last changed when the image was last used.
func (s *Store) recordPath(digest string) string {
	return filepath.Join(s.imageDir(digest), recordName)
}

func (s *Store) tagPath(ref name.Reference) string {
	sum := sha256.Sum256([]byte(ref.Name()))
	return filepath.Join(s.dir, tagPrefix+hex.EncodeToString(sum[:]))
}

// pull asks the registry what the reference is, and fetches and unpacks it unless that content is here.
func (s *Store) pull(ctx context.Context, asked string, keys authn.Keychain) (*Image, error) {
	fail := func(err error) (*Image, error) {
		return nil, &Error{Reason: ReasonPull, Retry: true, Err: fmt.Errorf("pull image %q: %w", asked, err)}
	}
	ref, err := name.ParseReference(asked)
	if err != nil {
		return nil, &Error{Reason: ReasonInvalidName, Err: fmt.Errorf("image %q: %w", asked, err)}
	}
	if keys == nil {
		keys = authn.NewMultiKeychain() // anonymous
	}
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(keys),
		remote.WithRetryBackoff(retryBackoff),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: goruntime.GOARCH}))
	if err != nil {
		return fail(err)
	}
	hash, err := img.Digest()
	if err != nil {
		return fail(err)
	}
	digest := hash.String()
	release, err := s.lock(ctx, digest)
	if err != nil {
		return fail(err)
	}
	defer release()
	if _, err := os.Stat(s.imageDir(digest)); os.IsNotExist(err) {
		if err := s.fetch(ctx, img, digest); err != nil {
			return fail(err)
		}
	} else if err != nil {
		return fail(err)
	}
	// A reference by digest may name an index of several platforms: it is remembered like a tag.
	if ref.Identifier() != digest {
		path := s.tagPath(ref)
		if _, ok := ref.(name.Digest); ok {
			if err := linkIndex(s.imageDir(digest), s.imageDir(ref.Identifier())); err != nil {
				return fail(err)
			}
		} else if err := writeFile(path, []byte(digest)); err != nil {
			return fail(err)
		}
	}
	opened, err := s.open(digest)
	if err != nil {
		return fail(err)
	}
	opened.Name = asked
	return opened, nil
}

// linkIndex makes the digest of an index another name of the image chosen from it.
func linkIndex(image, index string) error {
	err := os.Symlink(filepath.Base(image), index)
	if os.IsExist(err) {
		return nil
	}
	return err
}

func writeFile(path string, data []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// lock lets one goroutine at a time work on a digest.
func (s *Store) lock(ctx context.Context, digest string) (release func(), err error) {
	s.mu.Lock()
	p := s.pulls[digest]
	if p == nil {
		p = &pull{token: make(chan struct{}, 1)}
		p.token <- struct{}{}
		s.pulls[digest] = p
	}
	p.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		if p.users--; p.users == 0 {
			delete(s.pulls, digest)
		}
		s.mu.Unlock()
	}
	select {
	case <-p.token:
		return func() { p.token <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// fetch downloads and unpacks an image; it appears under its final name only when it is complete and on the disk.
func (s *Store) fetch(ctx context.Context, img v1.Image, digest string) (err error) {
	tmp, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	tree := filepath.Join(tmp, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	if config.OS != "" && config.OS != "linux" || config.Architecture != "" && config.Architecture != goruntime.GOARCH {
		return fmt.Errorf("the image is for %s/%s, and this node is linux/%s", config.OS, config.Architecture, goruntime.GOARCH)
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	u, err := newUnpacker(tree, s.ids)
	if err != nil {
		return err
	}
	defer u.close()
	for i, layer := range layers {
		r, err := layer.Uncompressed()
		if err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
		err = u.layer(ctx, r)
		r.Close()
		if err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	if err := u.finish(); err != nil {
		return err
	}
	meta, err := json.Marshal(saved{Digest: digest, Config: Config{
		Entrypoint: config.Config.Entrypoint, Cmd: config.Config.Cmd, Env: config.Config.Env,
		WorkingDir: config.Config.WorkingDir, User: config.Config.User,
	}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, recordName), meta, 0o600); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o711); err != nil {
		return err
	}
	if err := unix.Syncfs(u.root); err != nil {
		return err
	}
	return s.adopt(tmp, s.imageDir(digest))
}
