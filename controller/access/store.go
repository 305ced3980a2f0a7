package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Options says where keys are kept.
type Options struct {
	// Client talks to the API server directly, uncached.
	Client client.WithWatch
	// SystemNamespace holds the keys; v1alpha1.SystemNamespace when empty.
	SystemNamespace string
	Logger          *slog.Logger
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Store keeps API keys as Secrets, hashed, and answers Authenticate from memory. A watch keeps the memory true, so
// that a key revoked anywhere stops working within moments.
type Store struct {
	client    client.WithWatch
	namespace string
	log       *slog.Logger
	now       func() time.Time

	synced   chan struct{}
	syncOnce sync.Once

	mu   sync.RWMutex
	keys map[string]entry // by key id
	// gone holds the UIDs of deleted Secrets, so that a late event, or the late answer to their creation, does not
	// bring a revoked key back; and when the watch told, zero as long as it has not.
	gone map[types.UID]time.Time
	// used holds the last use of keys that is not written down yet.
	used map[string]time.Time

	// spaces makes one caller at a time derive a namespace.
	spaces sync.Mutex
}

type entry struct {
	Key
	uid types.UID
}

var _ Authenticator = (*Store)(nil)

// NewStore makes a store. It answers ErrUnavailable until Start has read the keys.
func NewStore(o Options) (*Store, error) {
	if o.Client == nil {
		return nil, errors.New("access: Options.Client is required")
	}
	if o.SystemNamespace == "" {
		o.SystemNamespace = v1alpha1.SystemNamespace
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{
		client:    o.Client,
		namespace: o.SystemNamespace,
		log:       o.Logger.With("component", "access"),
		now:       o.Now,
		synced:    make(chan struct{}),
		keys:      map[string]entry{},
		gone:      map[types.UID]time.Time{},
		used:      map[string]time.Time{},
	}, nil
}

// Authenticate turns a presented key into its Caller: ErrUnauthenticated for a missing, malformed, unknown, revoked or
// expired one, ErrUnavailable while the keys have not been read.
func (s *Store) Authenticate(ctx context.Context, presented string) (Caller, error) {
	select {
	case <-s.synced:
	default:
		return Caller{}, ErrUnavailable
	}
	hash, ok := hashKey(presented)
	if !ok {
		return Caller{}, ErrUnauthenticated
	}
	id := keyIDOf(hash)
	s.mu.RLock()
	e, known := s.keys[id]
	s.mu.RUnlock()
	if !known || subtle.ConstantTimeCompare([]byte(e.hash), []byte(hash)) != 1 || e.Expired(s.now()) {
		return Caller{}, ErrUnauthenticated
	}
	if e.Namespace == "" {
		ns, err := s.deriveNamespace(ctx, e)
		if err != nil {
			return Caller{}, err
		}
		e.Namespace = ns
	}
	s.touch(id)
	return e.Caller(), nil
}

// Impersonate makes an admin act as a team's user. It takes both names or neither; for callers who are not admins, and
// with neither name, the caller stays who it is.
func (s *Store) Impersonate(ctx context.Context, c Caller, team, user string) (Caller, error) {
	if c.Role != RoleAdmin || (team == "" && user == "") {
		return c, nil
	}
	if team == "" || user == "" {
		return Caller{}, fmt.Errorf("%w: impersonation takes both X-Impersonate-Team and X-Impersonate-User", ErrInvalid)
	}
	for _, k := range s.List() {
		if k.Team != team || k.User != user || k.Expired(s.now()) {
			continue
		}
		as := k.Caller()
		// Acts as the tenant, in the tenant's bounds; the key that answers for it stays the admin's own.
		as.KeyID, as.Role, as.Agent = c.KeyID, RoleTenant, false
		if as.Namespace == "" {
			ns, err := s.derived(ctx, team, user)
			if err != nil {
				return Caller{}, err
			}
			as.Namespace = ns
		}
		return as, nil
	}
	return Caller{}, fmt.Errorf("%w: no key was ever issued to user %q of team %q", ErrInvalid, user, team)
}

// deriveNamespace gives a key without a namespace its tenant's own, and remembers it.
func (s *Store) deriveNamespace(ctx context.Context, e entry) (string, error) {
	ns, err := s.derived(ctx, e.Team, e.User)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	if now, ok := s.keys[e.ID]; ok && now.uid == e.uid {
		now.Namespace = ns
		s.keys[e.ID] = now
	}
	s.mu.Unlock()
	return ns, nil
}

func (s *Store) derived(ctx context.Context, team, user string) (string, error) {
	s.spaces.Lock()
	defer s.spaces.Unlock()
	return ensureNamespace(ctx, s.client, team, user)
}

// List returns every key, newest first.
func (s *Store) List() []Key {
	s.mu.RLock()
	out := make([]Key, 0, len(s.keys))
	for id, e := range s.keys {
		if t := s.used[id]; t.After(e.LastUsedAt) {
			e.LastUsedAt = t
		}
		out = append(out, e.Key)
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b Key) int {
		if c := b.IssuedAt.Compare(a.IssuedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// Get returns one key by its id.
func (s *Store) Get(id string) (Key, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.keys[id]
	if t := s.used[id]; t.After(e.LastUsedAt) {
		e.LastUsedAt = t
	}
	return e.Key, ok
}

// put remembers what the API server said about a key.
func (s *Store) put(secret *corev1.Secret) {
	k, err := keyFromSecret(secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.log.Warn("a key cannot be read and is refused", "secret", secret.Name, "error", err)
		delete(s.keys, strings.TrimPrefix(secret.Name, secretPrefix))
		return
	}
	if _, deleted := s.gone[secret.UID]; deleted {
		return
	}
	if old, ok := s.keys[k.ID]; ok && old.uid == secret.UID && k.Namespace == "" {
		k.Namespace = old.Namespace
	}
	s.keys[k.ID] = entry{Key: k, uid: secret.UID}
}

// drop forgets a key that is gone.
func (s *Store) drop(secret *corev1.Secret) {
	id := strings.TrimPrefix(secret.Name, secretPrefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[secret.UID] = s.now()
	if e, ok := s.keys[id]; ok && e.uid == secret.UID {
		delete(s.keys, id)
		delete(s.used, id)
	}
}

// forgetGone forgets the Secrets of whose end the watch told long ago.
func (s *Store) forgetGone() {
	before := s.now().Add(-lastUsedEvery)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.gone, func(_ types.UID, told time.Time) bool { return !told.IsZero() && told.Before(before) })
}

func (s *Store) touch(id string) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[id] = now
}
