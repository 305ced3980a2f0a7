package claim

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	masterKeySecret = "agentbox-master-key"
	masterKeyData   = "key"
	masterKeyBytes  = 32
)

// secrets are the tokens of one sandbox. They live on the Pod only sealed, so that they survive a restart of the
// controller without a write of their own, and reading Pods does not reveal them.
type secrets struct {
	Access  string `json:"a,omitempty"`
	Traffic string `json:"t,omitempty"`
}

// sealer seals secrets with AES-256-GCM. The sandbox id is bound in as associated data, so that a sealed value
// copied to another Pod does not open.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte) (*sealer, error) {
	if len(key) != masterKeyBytes {
		return nil, fmt.Errorf("the master key has %d bytes, not %d", len(key), masterKeyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead: aead}, nil
}

func (s *sealer) seal(id string, v secrets) string {
	plain, _ := json.Marshal(v) // two strings always marshal
	return base64.RawStdEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(id)))
}

var errUnsealed = errors.New("the sandbox's sealed tokens do not open with the master key")

func (s *sealer) open(id, sealed string) (v secrets, err error) {
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return v, errUnsealed
	}
	plain, err := s.aead.Open(nil, nil, raw, []byte(id))
	if err != nil {
		return v, errUnsealed
	}
	if err := json.Unmarshal(plain, &v); err != nil {
		return v, errUnsealed
	}
	return v, nil
}

// loadSealer reads the master key, and mints it when there is none. Two controllers that start together agree: the
// one whose create loses reads the other's.
func loadSealer(ctx context.Context, c client.Client, namespace string) (*sealer, error) {
	key := client.ObjectKey{Namespace: namespace, Name: masterKeySecret}
	var s corev1.Secret
	err := c.Get(ctx, key, &s)
	if apierrors.IsNotFound(err) {
		fresh := make([]byte, masterKeyBytes)
		_, _ = rand.Read(fresh)
		s = corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace},
			Type:       corev1.SecretTypeOpaque,
			Data:       map[string][]byte{masterKeyData: fresh},
		}
		if err = c.Create(ctx, &s); apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, key, &s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("master key in secret %s: %w", key, err)
	}
	sealer, err := newSealer(s.Data[masterKeyData])
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w; restore it from a backup, or delete it to mint a new one (live sandboxes then lose their tokens)", key, err)
	}
	return sealer, nil
}
