// Package credential keeps API keys: in the operating system's keyring when there
// is one, otherwise in a file that only its owner can read. Every key is stored
// with the address it was saved for.
package credential

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
	"github.com/zalando/go-keyring"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
)

// Where a key can be kept.
const (
	InKeyring = "keyring"
	InFile    = "file"
)

// ModeVariable chooses the place: auto (the keyring when it answers), file or os.
const ModeVariable = "AGENTBOX_KEYRING"

const (
	service = "agentbox-abx"
	// keyringTimeout is how long a keyring may take: some wait for a desktop prompt that nobody sees.
	keyringTimeout = 3 * time.Second
	// maxKey is the smallest limit of the platforms' keyrings (Windows).
	maxKey = 2560
)

// Keyring is what Store needs of the operating system.
type Keyring interface {
	Set(service, user, secret string) error
	Get(service, user string) (string, error)
	Delete(service, user string) error
}

// Store keeps keys.
type Store struct {
	Path    string // the credentials file
	Mode    string // auto, file or os
	Keyring Keyring
	Timeout time.Duration
}

// New returns the store beside the configuration file, in the mode the environment asks for.
func New(configPath string, getenv func(string) string) (*Store, error) {
	s := &Store{
		Path: filepath.Join(filepath.Dir(configPath), "credentials.json"), Mode: getenv(ModeVariable),
		Keyring: osKeyring{getenv}, Timeout: keyringTimeout,
	}
	switch s.Mode {
	case "":
		s.Mode = "auto"
	case "auto", "file", "os":
	default:
		return nil, clierr.New(clierr.InvalidValue, "%s=%s does not exist", ModeVariable, s.Mode).
			Choices([]string{"auto", "file", "os"}, "")
	}
	return s, nil
}

// Check refuses what cannot be a key.
func Check(key string) error {
	switch {
	case key == "":
		return clierr.New(clierr.InvalidValue, "the key is empty").Hint("pipe it in: abx context set <name> --api-key-stdin < KEYFILE")
	case len(key) > maxKey:
		return clierr.New(clierr.InvalidValue, "the key is %d bytes long, and a keyring takes at most %d", len(key), maxKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return clierr.New(clierr.InvalidValue, "the key holds a blank or a character that cannot stand in a request header").
			Hint("a key looks like agbx_ followed by hexadecimal digits")
	}
	return nil
}

// Save keeps the key of a context for an address, reads it back and says where it is.
func (s *Store) Save(ctx context.Context, name, address, key string) (*config.Credential, error) {
	if err := Check(key); err != nil {
		return nil, err
	}
	if s.Mode != "file" {
		err := s.saveKeyring(ctx, account(name, address), key)
		if err == nil {
			return &config.Credential{Store: InKeyring, Address: address, ID: rand.Text()}, nil
		}
		// Only a keyring that is not there may be replaced by a file; one that failed may not, silently.
		if s.Mode == "os" || !errors.Is(err, errNoKeyring) {
			return nil, clierr.New(clierr.InvalidConfig, "the key could not be kept in the keyring: %v", err).Because(err).
				Hint("unlock the keyring, or keep the key in a file that only you can read: " + ModeVariable + "=file")
		}
	}
	if err := s.saveFile(name, address, key); err != nil {
		return nil, clierr.New(clierr.InvalidConfig, "the key could not be kept in %s: %v", s.Path, err).Because(err)
	}
	return &config.Credential{Store: InFile, Address: address, ID: rand.Text()}, nil
}

// Load returns the key that was saved for the context and c.Address.
func (s *Store) Load(ctx context.Context, name string, c *config.Credential) (string, error) {
	var key string
	var err error
	if c.Store == InKeyring {
		err = s.bounded(ctx, func() (e error) { key, e = s.Keyring.Get(service, account(name, c.Address)); return e })
	} else {
		var keys map[string]entry
		if keys, err = s.readFile(); err == nil {
			e, ok := keys[name]
			if !ok || e.Address != c.Address {
				err = fs.ErrNotExist
			}
			key = e.Key
		}
	}
	if err == nil && key != "" {
		return key, nil
	}
	e := clierr.New(clierr.Unauthenticated, "the key of context %q is not in the %s where it was saved", name, s.Place(c.Store)).Because(err)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, keyring.ErrNotFound) {
		e = clierr.New(clierr.Unauthenticated, "the key of context %q could not be read from the %s: %v", name, s.Place(c.Store), err).Because(err)
	}
	return "", e.Hint("save it again: abx context set "+name+" --api-key-stdin < KEYFILE", "or set AGENTBOX_API_KEY")
}

// Delete forgets the key of a context; one that is gone already is no error.
func (s *Store) Delete(ctx context.Context, name string, c *config.Credential) error {
	if c.Store == InKeyring {
		err := s.bounded(ctx, func() error { return s.Keyring.Delete(service, account(name, c.Address)) })
		if err != nil && !errors.Is(err, keyring.ErrNotFound) {
			return fmt.Errorf("the key is still in the keyring: %w", err)
		}
		return nil
	}
	return s.editFile(func(keys map[string]entry) {
		if keys[name].Address == c.Address { // not one that was saved for another address since
			delete(keys, name)
		}
	})
}

// Place is the name of a store for people.
func (s *Store) Place(store string) string {
	if store == InKeyring {
		return "operating system's keyring"
	}
	return "file " + s.Path
}

func (s *Store) saveKeyring(ctx context.Context, user, key string) error {
	return s.bounded(ctx, func() error {
		if err := s.Keyring.Set(service, user, key); err != nil {
			return err
		}
		// Some keyrings report success and keep nothing, or a part.
		back, err := s.Keyring.Get(service, user)
		if err != nil {
			return fmt.Errorf("it was saved and cannot be read back: %w", err)
		}
		if back != key {
			return errors.New("what was read back is not what was saved")
		}
		return nil
	})
}

// bounded runs f for at most s.Timeout. The library cannot be interrupted, so f is
// left behind in that case and ends with the process.
func (s *Store) bounded(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer within %s: %w", s.Timeout, ctx.Err())
	}
}

// account makes the address a part of the name: a key is found only for the
// address it was saved for.
func account(name, address string) string { return name + " " + address }

type entry struct {
	Address string `json:"address"`
	Key     string `json:"apiKey"`
}

func (s *Store) readFile() (map[string]entry, error) {
	keys := map[string]entry{}
	data, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return keys, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, errors.New("it is not valid JSON; correct it or move it away")
	}
	return keys, nil
}

func (s *Store) saveFile(name, address, key string) error {
	return s.editFile(func(keys map[string]entry) { keys[name] = entry{address, key} })
}

func (s *Store) editFile(change func(map[string]entry)) error {
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		return err
	}
	unlock, err := lockedfile.MutexAt(s.Path + ".lock").Lock()
	if err != nil {
		return err
	}
	defer unlock()
	keys, err := s.readFile()
	if err != nil {
		return err
	}
	change(keys)
	data, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		return err
	}
	return config.WriteFile(s.Path, append(data, '\n'))
}

// errNoKeyring means that this machine has no keyring at all.
var errNoKeyring = errors.New("there is no keyring on this machine")

type osKeyring struct{ getenv func(string) string }

func (k osKeyring) Set(service, user, secret string) error {
	if !k.present() {
		return errNoKeyring
	}
	return classify(keyring.Set(service, user, secret))
}

func (k osKeyring) Get(service, user string) (string, error) {
	if !k.present() {
		return "", errNoKeyring
	}
	v, err := keyring.Get(service, user)
	return v, classify(err)
}

func (k osKeyring) Delete(service, user string) error {
	if !k.present() {
		return errNoKeyring
	}
	return classify(keyring.Delete(service, user))
}

// present keeps the library from starting a message bus of its own where there is none.
func (k osKeyring) present() bool {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		return true
	}
	if k.getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return true
	}
	_, err := os.Stat(fmt.Sprintf("/run/user/%d/bus", os.Getuid()))
	return err == nil
}

func classify(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, absent := range []string{"org.freedesktop.DBus.Error.ServiceUnknown", "was not provided by any .service files", "connect: no such file", "connect: connection refused"} {
		if strings.Contains(text, absent) {
			return errors.Join(errNoKeyring, err)
		}
	}
	if errors.Is(err, keyring.ErrUnsupportedPlatform) {
		return errors.Join(errNoKeyring, err)
	}
	return err
}
