package access

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Key is what is kept of an issued key. The secret itself is not: only its SHA-256 is.
type Key struct {
	// ID is the first 16 hex digits of the hash; it names the key everywhere.
	ID   string
	Role Role
	// Agent keys wait for approvals.
	Agent       bool
	Team        string
	User        string
	Namespace   string
	Description string
	IssuedAt    time.Time
	// ExpiresAt is zero for a key that does not expire.
	ExpiresAt time.Time
	// LastUsedAt is written lazily, about once a minute; zero means never used, as far as is recorded.
	LastUsedAt time.Time
	// SyncSource is "global" for a key that a hub owns, else empty.
	SyncSource string

	// hash is the SHA-256 of the key's agbx_ form, 64 hex digits.
	hash string
}

// Expired reports whether the key's time is over.
func (k Key) Expired(now time.Time) bool { return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) }

// Caller is who presents the key.
func (k Key) Caller() Caller {
	return Caller{KeyID: k.ID, Role: k.Role, Agent: k.Agent, Team: k.Team, User: k.User, Namespace: k.Namespace}
}

// The shape of a key's Secret. Names and keys are those of deployments that exist.
const (
	secretPrefix = "agentbox-apikey-"

	annotationLastUsed = v1alpha1.Prefix + "last-used-at"

	dataToken           = "token"
	dataNamespace       = "namespace"
	dataRole            = "role"
	dataUser            = "user"
	dataTeam            = "team"
	dataDescription     = "description"
	dataIssuedAt        = "issuedAt"
	dataExpiresAt       = "expiresAt"
	dataRequireApproval = "requireApproval"
)

func secretName(id string) string { return secretPrefix + id }

func (k Key) toSecret(namespace string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      secretName(k.ID),
			Namespace: namespace,
			Labels: map[string]string{
				v1alpha1.LabelKeyType:      v1alpha1.KeyTypeAPIKey,
				v1alpha1.LabelKeyNamespace: k.Namespace,
				v1alpha1.LabelKeyUser:      k.User,
				v1alpha1.LabelKeyTeam:      k.Team,
				v1alpha1.LabelKeyHash:      k.ID,
			},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			dataToken:       []byte(k.hash),
			dataNamespace:   []byte(k.Namespace),
			dataRole:        []byte(k.Role),
			dataUser:        []byte(k.User),
			dataTeam:        []byte(k.Team),
			dataDescription: []byte(k.Description),
			dataIssuedAt:    []byte(k.IssuedAt.UTC().Format(time.RFC3339)),
		},
	}
	if !k.ExpiresAt.IsZero() {
		s.Data[dataExpiresAt] = []byte(k.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if k.Agent {
		s.Data[dataRequireApproval] = []byte("true")
	}
	if k.SyncSource != "" {
		s.Labels[v1alpha1.LabelSyncSource] = k.SyncSource
	}
	return s
}

// keyFromSecret reads a key. It refuses whatever it cannot read whole: a key with a broken expiry or role is no key.
func keyFromSecret(s *corev1.Secret) (Key, error) {
	k := Key{
		hash:        string(s.Data[dataToken]),
		Role:        Role(s.Data[dataRole]),
		Team:        string(s.Data[dataTeam]),
		User:        string(s.Data[dataUser]),
		Namespace:   string(s.Data[dataNamespace]),
		Description: string(s.Data[dataDescription]),
		SyncSource:  s.Labels[v1alpha1.LabelSyncSource],
	}
	if !isLowerHex(k.hash, keyHexLen) {
		return Key{}, fmt.Errorf("secret %s: data.token is not a SHA-256 in hex", s.Name)
	}
	k.ID = keyIDOf(k.hash)
	if s.Name != secretName(k.ID) {
		return Key{}, fmt.Errorf("secret %s: its name does not follow from data.token", s.Name)
	}
	if k.Role != RoleAdmin && k.Role != RoleTenant {
		return Key{}, fmt.Errorf("secret %s: unknown role %q", s.Name, k.Role)
	}
	if k.Team == "" || k.User == "" {
		return Key{}, fmt.Errorf("secret %s: a key needs a team and a user", s.Name)
	}
	switch v := string(s.Data[dataRequireApproval]); v {
	case "", "false":
	case "true":
		k.Agent = true
	default:
		return Key{}, fmt.Errorf("secret %s: requireApproval is %q, not true or false", s.Name, v)
	}
	var err error
	if k.IssuedAt, err = timeOf(s, dataIssuedAt); err != nil {
		return Key{}, err
	}
	if k.ExpiresAt, err = timeOf(s, dataExpiresAt); err != nil {
		return Key{}, err
	}
	if v := s.Annotations[annotationLastUsed]; v != "" {
		// Only a remark for people: a broken one must not lock anybody out.
		k.LastUsedAt, _ = time.Parse(time.RFC3339, v)
	}
	return k, nil
}

func timeOf(s *corev1.Secret, key string) (time.Time, error) {
	v := string(s.Data[key])
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		return time.Time{}, fmt.Errorf("secret %s: %s is not an RFC 3339 time", s.Name, key)
	}
	return t, nil
}
