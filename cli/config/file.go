// Package config reads and writes the saved contexts, and decides which value of
// a setting holds and where it came from.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/rogpeppe/go-internal/lockedfile"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/registry"
)

// Context is one saved deployment.
type Context struct {
	Endpoint   string      `json:"endpoint,omitempty"`   // the console's address; reaches every cluster
	ClusterAPI string      `json:"clusterApi,omitempty"` // one cluster's own API; outranks Endpoint
	Cluster    string      `json:"cluster,omitempty"`
	AuthScheme string      `json:"authScheme,omitempty"` // api-key or bearer
	CAFile     string      `json:"caFile,omitempty"`
	APIKey     string      `json:"apiKey,omitempty"` // only in files of older releases
	Credential *Credential `json:"credential,omitempty"`

	extra map[string]json.RawMessage
}

// Credential says where the key of a context is kept and which address it is for.
type Credential struct {
	Store   string `json:"store"` // keyring or file
	Address string `json:"address"`
	// ID is new at every saving: it tells a key from the one that was there before, and nothing about either.
	ID string `json:"id,omitempty"`
}

// Address returns the normalised address that the context's key belongs to.
func (c Context) Address() string {
	if c.ClusterAPI != "" {
		return NormalizeAddress(c.ClusterAPI)
	}
	return NormalizeAddress(c.Endpoint)
}

// File is the configuration file. Members that this release does not know are kept.
type File struct {
	Path     string
	Current  string
	Contexts map[string]Context
	// Flat is the single unnamed deployment that older releases wrote at the top level.
	Flat Context

	extra map[string]json.RawMessage
}

// noHome is why there is no place for the configuration.
const noHome = "there is no home directory to keep the configuration in"

// Path returns where the configuration is: $XDG_CONFIG_HOME/abx/config.json, or the same below ~/.config. It is empty when
// there is no home directory: then nothing is saved, and the environment can still say everything.
func Path(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the XDG specification: a relative value is ignored
		home := getenv("HOME")
		if home == "" {
			var err error
			if home, err = os.UserHomeDir(); err != nil {
				return ""
			}
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "abx", "config.json")
}

// Load reads the file at path. One that does not exist is empty; one that cannot
// be understood is an error and is never written over.
func Load(path string) (*File, error) {
	f := &File{Path: path, Contexts: map[string]Context{}}
	if path == "" {
		return f, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // a home such as /dev/null holds nothing
		return f, nil
	}
	if err != nil {
		return nil, clierr.New(clierr.InvalidConfig, "the configuration cannot be read: %v", err).Because(err)
	}
	if err := f.decode(data); err != nil {
		return nil, clierr.New(clierr.InvalidConfig, "the configuration %s is not valid: %v", path, err).Because(err).
			Hint("correct the file, or move it away and run: abx context set <name> --endpoint URL --api-key-stdin")
	}
	return f, nil
}

func (f *File) decode(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("it is empty")
	}
	type plain Context // without UnmarshalJSON, which keeps the members this does not know
	var flat plain
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return describe(err)
	}
	if err := json.Unmarshal(data, &flat); err != nil {
		return describe(err)
	}
	var named struct {
		CurrentContext string             `json:"currentContext"`
		Contexts       map[string]Context `json:"contexts"`
	}
	if err := json.Unmarshal(data, &named); err != nil {
		return describe(err)
	}
	f.Flat, f.Current = Context(flat), named.CurrentContext
	if named.Contexts != nil {
		f.Contexts = named.Contexts
	}
	f.extra = all
	for _, known := range append(contextKeys(), "currentContext", "contexts") {
		delete(f.extra, known)
	}
	return nil
}

func describe(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d: %w", syntax.Offset, err)
	case errors.As(err, &kind):
		return fmt.Errorf("%q must be %s, not %s", kind.Field, kind.Type.Kind(), kind.Value)
	}
	return err
}

func contextKeys() []string {
	return []string{"endpoint", "clusterApi", "cluster", "authScheme", "caFile", "apiKey", "credential"}
}

// UnmarshalJSON keeps the members it does not know.
func (c *Context) UnmarshalJSON(data []byte) error {
	type plain Context
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &c.extra); err != nil {
		return err
	}
	for _, known := range contextKeys() {
		delete(c.extra, known)
	}
	return nil
}

// MarshalJSON writes the unknown members back.
func (c Context) MarshalJSON() ([]byte, error) {
	type plain Context
	return merge(plain(c), c.extra)
}

// MarshalJSON writes the whole file.
func (f *File) MarshalJSON() ([]byte, error) {
	type plain Context
	return merge(struct {
		plain
		CurrentContext string             `json:"currentContext,omitempty"`
		Contexts       map[string]Context `json:"contexts,omitempty"`
	}{plain(f.Flat), f.Current, f.Contexts}, f.extra)
}

func merge(known any, extra map[string]json.RawMessage) ([]byte, error) {
	data, err := json.Marshal(known)
	if err != nil || len(extra) == 0 {
		return data, err
	}
	all := maps.Clone(extra)
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// Edit loads the file at path, lets change alter it and writes it back, all under
// a lock, so that two commands at once lose nothing. An error of change leaves the
// file as it was.
func Edit(path string, change func(*File) error) error {
	if path == "" {
		return clierr.New(clierr.InvalidConfig, "%s", noHome).Hint("set HOME or XDG_CONFIG_HOME")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return clierr.New(clierr.InvalidConfig, "the configuration directory cannot be made: %v", err).Because(err)
	}
	unlock, err := lockedfile.MutexAt(path + ".lock").Lock()
	if err != nil {
		return clierr.New(clierr.InvalidConfig, "the configuration cannot be locked: %v", err).Because(err)
	}
	defer unlock()
	f, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return err
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := WriteFile(path, append(data, '\n')); err != nil {
		return clierr.New(clierr.InvalidConfig, "the configuration cannot be written: %v", err).Because(err)
	}
	return nil
}

// WriteFile replaces path with data in one step; only the owner can read it.
func WriteFile(path string, data []byte) (err error) {
	if target, e := filepath.EvalSymlinks(path); e == nil {
		path = target // a link into a dotfiles directory stays a link
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(data); err == nil {
		err = tmp.Sync()
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Names returns the context names, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Get returns the named context, or an error that lists those that exist.
func (f *File) Get(name string) (Context, error) {
	if c, ok := f.Contexts[name]; ok {
		return c, nil
	}
	e := clierr.New(clierr.UnknownContext, "there is no context %q", name).
		Choices(f.Names(), registry.Suggest(name, f.Names()))
	if len(f.Contexts) == 0 {
		e.Hint("abx context set " + name + " --endpoint URL --api-key-stdin")
	}
	return Context{}, e
}
