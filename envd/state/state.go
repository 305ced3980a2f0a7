// Package state holds what the platform tells envd about its sandbox, and whether the sandbox has been used.
package state

import (
	"crypto/subtle"
	"maps"
	"sync"
	"sync/atomic"
)

// Settings are what POST /init delivers. A new set replaces the old one whole; nothing of an earlier sandbox stays.
type Settings struct {
	SandboxID   string
	LifecycleID string
	// AccessToken is the X-Access-Token that clients must send; empty leaves the sandbox open.
	AccessToken string
	EnvVars     map[string]string
	// DefaultUser acts where a request names nobody; empty means "user", or envd's own account when it is not root.
	DefaultUser string
	// DefaultWorkdir is the working directory where a request names none; empty means the user's home.
	DefaultWorkdir string
	// CAEnv are the variables that point programs at the sandbox's CA bundle; EnvVars win over them.
	CAEnv map[string]string
}

// State is safe for concurrent use.
type State struct {
	requireInit bool

	mu       sync.RWMutex
	armed    bool
	settings Settings

	used atomic.Bool
}

// New returns the state of a fresh sandbox. With requireInit nothing but the internal routes is served before Arm.
func New(requireInit bool) *State { return &State{requireInit: requireInit} }

// Arm replaces the settings and opens the gate.
func (s *State) Arm(settings Settings) {
	settings.EnvVars = maps.Clone(settings.EnvVars)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings, s.armed = settings, true
}

// Armed says whether Arm has been called.
func (s *State) Armed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.armed
}

// Ready says whether requests may be served.
func (s *State) Ready() bool { return !s.requireInit || s.Armed() }

// Settings returns the current settings. The maps are shared and must not be changed.
func (s *State) Settings() Settings {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.settings
}

// MarkUsed records that a client has been served: the sandbox is no longer pristine.
func (s *State) MarkUsed() { s.used.Store(true) }

// EverUsed says whether any client has been served.
func (s *State) EverUsed() bool { return s.used.Load() }

// TokenMatches compares given with the access token in constant time; it is false when there is no token.
func (s *State) TokenMatches(given string) bool {
	token := s.Settings().AccessToken
	return token != "" && Equal(given, token)
}

// Secured says whether clients must prove themselves.
func (s *State) Secured() bool { return s.Settings().AccessToken != "" }

// Equal compares secrets in constant time.
func Equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
