package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
	"navix.sh/agentbox/controller/embedded/runtime/oci"
)

const (
	// probeLimit bounds the trial of an OCI runtime; probeAgain is when one that failed is tried again.
	probeLimit = 30 * time.Second
	probeAgain = time.Minute
)

// probePrefix begins the names of the directories of such trials.
const probePrefix = "probe-"

// runtimes are those that Pods of a node can name. An OCI runtime is looked for and tried when it is first named.
type runtimes struct {
	builtIn *namespaces.Runtime
	dir     string // for trials

	mu    sync.Mutex
	tried map[string]trial
}

type trial struct {
	runtime *namespaces.Runtime
	err     error
	at      time.Time
}

// runtimeError is a runtime that this node cannot use.
type runtimeError struct{ err error }

func (e *runtimeError) Error() string { return e.err.Error() }
func (e *runtimeError) Unwrap() error { return e.err }

// removeTrials deletes what an agent that was killed while it tried the machine out has left in its directory.
func removeTrials(dir string) error {
	var errs []error
	for _, pattern := range []string{namespaces.TrialPrefix + "*", probePrefix + "*"} {
		left, err := filepath.Glob(filepath.Join(dir, pattern))
		errs = append(errs, err)
		for _, path := range left {
			errs = append(errs, namespaces.RemoveTree(path))
		}
	}
	return errors.Join(errs...)
}

// get returns the runtime with a name, or a runtimeError.
func (r *runtimes) get(ctx context.Context, name string) (*namespaces.Runtime, error) {
	if name == namespaces.Name {
		return r.builtIn, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.tried[name]
	if !ok || t.err != nil && time.Since(t.at) > probeAgain {
		t.runtime, t.err = r.try(ctx, name)
		t.at = time.Now()
		if ctx.Err() == nil && !errors.Is(t.err, oci.ErrAbsent) {
			r.tried[name] = t
		}
	}
	if t.err != nil {
		have := strings.Join(append([]string{namespaces.Name}, oci.OnPath()...), ", ")
		return nil, &runtimeError{fmt.Errorf("the sandbox runtime %q cannot be used on this node: %w; use one that is here: %s", name, t.err, have)}
	}
	return t.runtime, nil
}

func (r *runtimes) try(ctx context.Context, name string) (*namespaces.Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	found, err := oci.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	with := r.builtIn.With(found)
	if err := with.Probe(ctx, filepath.Join(r.dir, probePrefix+newContainerID())); err != nil {
		return nil, fmt.Errorf("it does not work on this machine: %w", err)
	}
	return with, nil
}
