package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

const (
	labelApproval = v1alpha1.Prefix + "approval" // "request" or "grant"
	labelAgentKey = v1alpha1.Prefix + "agent-key"
	kindRequest   = "request"
	kindGrant     = "grant"
	dataApproval  = "approval.json"

	requestPrefix = "apr_"
	grantPrefix   = "grn_"
)

func mintID(prefix string) string {
	var b [8]byte
	// crypto/rand.Read never fails: it ends the process when the system has no randomness.
	_, _ = rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// objectName is the ConfigMap of an id; empty for text that is no id.
func objectName(id, prefix string) string {
	digits, ok := strings.CutPrefix(id, prefix)
	if !ok || !isLowerHex(digits, keyIDLen) {
		return ""
	}
	return strings.TrimSuffix(prefix, "_") + "-" + digits
}

// stored is a request or grant with the object that holds it.
type stored[T any] struct {
	value  T
	object *corev1.ConfigMap
}

func load[T any](ctx context.Context, a *Approvals, kind, keyID string) ([]stored[T], error) {
	want := client.MatchingLabels{labelApproval: kind}
	if keyID != "" {
		want[labelAgentKey] = keyID
	}
	var list corev1.ConfigMapList
	if err := a.client.List(ctx, &list, client.InNamespace(a.namespace), want); err != nil {
		return nil, fmt.Errorf("list the approvals: %w", err)
	}
	out := make([]stored[T], 0, len(list.Items))
	for i := range list.Items {
		s, err := decode[T](&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func read[T any](ctx context.Context, a *Approvals, name string) (stored[T], error) {
	if name == "" {
		return stored[T]{}, ErrNotFound
	}
	var m corev1.ConfigMap
	err := a.client.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: name}, &m)
	if apierrors.IsNotFound(err) {
		return stored[T]{}, ErrNotFound
	}
	if err != nil {
		return stored[T]{}, err
	}
	return decode[T](&m)
}

func decode[T any](m *corev1.ConfigMap) (stored[T], error) {
	s := stored[T]{object: m}
	if err := json.Unmarshal([]byte(m.Data[dataApproval]), &s.value); err != nil {
		return s, fmt.Errorf("config map %s: it does not hold an approval: %w", m.Name, err)
	}
	return s, nil
}

func (a *Approvals) create(ctx context.Context, name, kind, keyID string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: a.namespace,
			Labels: map[string]string{labelApproval: kind, labelAgentKey: keyID},
		},
		Data: map[string]string{dataApproval: string(raw)},
	})
}

func (a *Approvals) save(ctx context.Context, object *corev1.ConfigMap, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	next := object.DeepCopy()
	next.Data = map[string]string{dataApproval: string(raw)}
	return a.client.Update(ctx, next)
}

// forget deletes requests that ended a while ago.
func (a *Approvals) forget(ctx context.Context, requests []stored[Approval]) {
	for _, s := range requests {
		if a.now().Sub(s.value.ExpiresAt) > forgetAfter {
			// It is tried again with the next request of this key.
			_ = a.client.Delete(ctx, s.object)
		}
	}
}
