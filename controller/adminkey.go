package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"navix.sh/agentbox/controller/access"
)

// keyKeeper keeps the first administrator's key for whoever runs the platform.
type keyKeeper interface {
	Load(ctx context.Context) (string, error) // empty when there is none
	Save(ctx context.Context, key string) error
}

// adminKey returns an administrator's key that works: the one of an earlier start, or else a new one.
func adminKey(ctx context.Context, s Settings, kube *kubernetes, store *access.Store) (string, error) {
	saved := readClientEnv(s.DataDir)[adminKeyName]
	if kube.Keys == nil {
		return store.Bootstrap(ctx, saved)
	}
	kept, err := kube.Keys.Load(ctx)
	if err != nil {
		return "", err
	}
	if kept != "" {
		saved = kept
	}
	key, err := store.Bootstrap(ctx, saved)
	if err == nil && key != kept {
		err = kube.Keys.Save(ctx, key)
	}
	return key, err
}

// adminKeyName is what the key is called in client.env, and in the Secret.
const adminKeyName = "AGENTBOX_API_KEY"

const adminKeySecret = "agentbox-admin-key"

// keySecret keeps the key in a Secret of the system namespace. A Pod's files end with it, and its image has no shell to
// read them with.
type keySecret struct{ secrets corev1client.SecretInterface }

func (k *keySecret) Load(ctx context.Context) (string, error) {
	secret, err := k.secrets.Get(ctx, adminKeySecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the first admin key: %w", err)
	}
	return string(secret.Data[adminKeyName]), nil
}

func (k *keySecret) Save(ctx context.Context, key string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: adminKeySecret},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{adminKeyName: []byte(key)},
	}
	_, err := k.secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = k.secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("keep the first admin key: %w", err)
	}
	return nil
}
