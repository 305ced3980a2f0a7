package access

import (
	"context"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Spec is what a key is asked to be.
type Spec struct {
	Role  Role
	Agent bool
	Team  string
	User  string
	// Namespace is where the key's objects live; empty derives the tenant's own.
	Namespace   string
	Description string
	// ExpiresAt is zero for a key that does not expire.
	ExpiresAt time.Time
	// TokenHash imports a key that was minted elsewhere: the SHA-256, in hex, of its agbx_ form.
	TokenHash string
	// IssuedAt is when an imported key was issued; now when zero.
	IssuedAt time.Time

	bootstrap bool
}

const (
	maxDescriptionLen = 1024
	labelBootstrap    = "agentbox.io/bootstrap"
)

// Issue makes a key and returns its plaintext, which is shown this once and kept nowhere. For an imported key the
// plaintext is empty. Errors wrap ErrInvalid or are ErrExists where the request is at fault.
func (s *Store) Issue(ctx context.Context, spec Spec) (Key, string, error) {
	k, plain, err := s.prepare(spec)
	if err != nil {
		return Key{}, "", err
	}
	if k.Namespace == "" {
		if k.Namespace, err = s.derived(ctx, k.Team, k.User); err != nil {
			return Key{}, "", err
		}
	} else if err = createNamespace(ctx, s.client, k.Namespace); err != nil {
		return Key{}, "", err
	}
	if err = createNamespace(ctx, s.client, s.namespace); err != nil {
		return Key{}, "", err
	}
	secret := k.toSecret(s.namespace)
	if spec.bootstrap {
		secret.Labels[labelBootstrap] = "true"
	}
	if err = s.client.Create(ctx, secret); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return Key{}, "", ErrExists
		}
		return Key{}, "", fmt.Errorf("store the key: %w", err)
	}
	s.put(secret)
	return k, plain, nil
}

// Validate says what Issue would refuse, without issuing anything.
func (s *Store) Validate(spec Spec) (Key, error) {
	k, _, err := s.prepare(spec)
	if err == nil && spec.TokenHash != "" {
		if _, exists := s.Get(k.ID); exists {
			err = ErrExists
		}
	}
	return k, err
}

func (s *Store) prepare(spec Spec) (Key, string, error) {
	if err := spec.check(s.now()); err != nil {
		return Key{}, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	hash, plain := spec.TokenHash, ""
	if hash == "" {
		plain = newKey()
		hash, _ = hashKey(plain)
	}
	issued := spec.IssuedAt
	if issued.IsZero() {
		issued = s.now()
	}
	return Key{
		ID:          keyIDOf(hash),
		Role:        spec.Role,
		Agent:       spec.Agent,
		Team:        spec.Team,
		User:        spec.User,
		Namespace:   spec.Namespace,
		Description: spec.Description,
		IssuedAt:    issued.UTC().Truncate(time.Second),
		ExpiresAt:   spec.ExpiresAt.UTC().Truncate(time.Second),
		hash:        hash,
	}, plain, nil
}

func (spec Spec) check(now time.Time) error {
	switch spec.Role {
	case RoleTenant:
	case RoleAdmin:
		if spec.Agent {
			return fmt.Errorf("an admin key cannot be in agent mode")
		}
	default:
		return fmt.Errorf("the role is %q, and must be %q or %q", spec.Role, RoleTenant, RoleAdmin)
	}
	for _, f := range []struct{ field, value string }{{"team", spec.Team}, {"user", spec.User}} {
		if f.value == "" {
			return fmt.Errorf("%s is required", f.field)
		}
		// They label what the key makes.
		if len(validation.IsValidLabelValue(f.value)) > 0 {
			return fmt.Errorf("%s %q must be at most 63 letters, digits, - _ and ., and begin and end with a letter or digit", f.field, f.value)
		}
	}
	if err := plainText(spec.Description, maxDescriptionLen); err != nil {
		return fmt.Errorf("description %w", err)
	}
	if spec.Namespace != "" {
		if problems := validation.IsDNS1123Label(spec.Namespace); len(problems) > 0 {
			return fmt.Errorf("namespace %q: %s", spec.Namespace, problems[0])
		}
	}
	if !spec.ExpiresAt.IsZero() && !spec.ExpiresAt.After(now) {
		return fmt.Errorf("expiresAt %s is not in the future", spec.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if spec.TokenHash != "" && !isLowerHex(spec.TokenHash, keyHexLen) {
		return fmt.Errorf("tokenHash must be the SHA-256 of the key as 64 lower-case hex digits")
	}
	return nil
}

// plainText refuses what would not survive a Secret, a log line or a terminal.
func plainText(v string, limit int) error {
	if utf8.RuneCountInString(v) > limit {
		return fmt.Errorf("is longer than %d characters", limit)
	}
	if !utf8.ValidString(v) {
		return fmt.Errorf("is not valid UTF-8")
	}
	for _, r := range v {
		if unicode.IsControl(r) {
			return fmt.Errorf("holds a control character")
		}
	}
	return nil
}

// Revoke deletes a key. It stops working here at once, and on other replicas when their watch hears of it. An unknown
// id is ErrNotFound; the last admin key that works is ErrLastAdmin.
func (s *Store) Revoke(ctx context.Context, id string) error {
	s.mu.RLock()
	e, ok := s.keys[id]
	s.mu.RUnlock()
	if !ok {
		return ErrNotFound
	}
	if s.lastAdmin(id) {
		return ErrLastAdmin
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName(id), Namespace: s.namespace}}
	err := s.client.Delete(ctx, secret, client.Preconditions{UID: &e.uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the key: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.keys[id]; ok && now.uid == e.uid {
		delete(s.keys, id)
		delete(s.used, id)
		s.gone[e.uid] = time.Time{}
	}
	return nil
}

func (s *Store) lastAdmin(id string) bool {
	others := false
	k, _ := s.Get(id)
	for _, o := range s.List() {
		others = others || (o.ID != id && o.Role == RoleAdmin && !o.Expired(s.now()))
	}
	return k.Role == RoleAdmin && !others
}

// Bootstrap makes sure that an admin key works. saved is the key of an earlier start, as the caller kept it (0600), or
// empty. It returns saved while that works; otherwise it mints a new key, revokes the bootstrap keys of earlier starts,
// whose plaintext nobody has any more, and returns the new one for the caller to keep.
func (s *Store) Bootstrap(ctx context.Context, saved string) (string, error) {
	if err := s.WaitSynced(ctx); err != nil {
		return "", err
	}
	if saved != "" {
		if c, err := s.Authenticate(ctx, saved); err == nil && c.Role == RoleAdmin {
			return saved, nil
		}
	}
	k, plain, err := s.Issue(ctx, Spec{
		Role: RoleAdmin, Team: BootstrapTeam, User: BootstrapUser, Namespace: BootstrapNamespace,
		Description: "minted at the platform's first start", bootstrap: true,
	})
	if err != nil {
		return "", fmt.Errorf("mint the first admin key: %w", err)
	}
	var old corev1.SecretList
	err = s.client.List(ctx, &old, client.InNamespace(s.namespace), client.MatchingLabels{labelBootstrap: "true"})
	if err != nil {
		return "", fmt.Errorf("look for earlier bootstrap keys: %w", err)
	}
	for i := range old.Items {
		if old.Items[i].Name == secretName(k.ID) {
			continue
		}
		if err = client.IgnoreNotFound(s.client.Delete(ctx, &old.Items[i])); err != nil {
			return "", fmt.Errorf("revoke an earlier bootstrap key: %w", err)
		}
		s.drop(&old.Items[i])
	}
	return plain, nil
}

// Who the first admin key belongs to, and where its objects live.
const (
	BootstrapTeam      = "default"
	BootstrapUser      = "admin"
	BootstrapNamespace = "default"
)
