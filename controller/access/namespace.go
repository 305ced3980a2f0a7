package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Who a tenant namespace belongs to. Annotations, since teams and users may be any text.
const (
	annotationOwnerTeam = v1alpha1.Prefix + "owner-team"
	annotationOwnerUser = v1alpha1.Prefix + "owner-user"
	labelManagedBy      = "app.kubernetes.io/managed-by"
	managedBy           = "agentbox"
)

const maxNamespace = 63

// namespaceName derives `t-<team>-<user>`: lower case, everything else a hyphen.
func namespaceName(team, user string) string {
	var b strings.Builder
	b.WriteString("t-")
	for _, r := range strings.ToLower(team + "-" + user) {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	name := strings.TrimRight(b.String(), "-")
	if len(name) > maxNamespace {
		return distinctName(name, team, user)
	}
	return name
}

// distinctName tells apart tenants whose plain names read the same ("a-b" of "c" and "a" of "b-c").
func distinctName(name, team, user string) string {
	sum := sha256.Sum256([]byte(team + "\x00" + user))
	suffix := "-" + hex.EncodeToString(sum[:])[:10]
	return strings.TrimRight(name[:min(len(name), maxNamespace-len(suffix))], "-") + suffix
}

// ensureNamespace returns the tenant's own namespace and creates it when it is missing. It never falls back to a
// shared one: an error is an error.
func ensureNamespace(ctx context.Context, c client.Client, team, user string) (string, error) {
	name := namespaceName(team, user)
	for _, candidate := range []string{name, distinctName(name, team, user)} {
		owned, err := claimNamespace(ctx, c, candidate, team, user)
		if err != nil {
			return "", fmt.Errorf("namespace %s of team %q and user %q: %w", candidate, team, user, err)
		}
		if owned {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("namespaces %s and %s both belong to other tenants", name, distinctName(name, team, user))
}

// claimNamespace makes name the tenant's, unless it is another's already.
func claimNamespace(ctx context.Context, c client.Client, name, team, user string) (bool, error) {
	for {
		var ns corev1.Namespace
		err := c.Get(ctx, client.ObjectKey{Name: name}, &ns)
		if apierrors.IsNotFound(err) {
			ns = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:        name,
				Labels:      map[string]string{labelManagedBy: managedBy},
				Annotations: map[string]string{annotationOwnerTeam: team, annotationOwnerUser: user},
			}}
			err = c.Create(ctx, &ns)
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			return err == nil, err
		}
		if err != nil {
			return false, err
		}
		if ns.DeletionTimestamp != nil {
			return false, fmt.Errorf("it is being deleted")
		}
		t, u := ns.Annotations[annotationOwnerTeam], ns.Annotations[annotationOwnerUser]
		if t != "" || u != "" {
			return t == team && u == user, nil
		}
		// Made beforehand by whoever runs the cluster: the first tenant whose name derives to it owns it.
		if ns.Annotations == nil {
			ns.Annotations = map[string]string{}
		}
		ns.Annotations[annotationOwnerTeam], ns.Annotations[annotationOwnerUser] = team, user
		err = c.Update(ctx, &ns)
		if apierrors.IsConflict(err) {
			continue
		}
		return err == nil, err
	}
}

// RestoreNamespace makes a tenant's namespace again that somebody has deleted.
func (s *Store) RestoreNamespace(ctx context.Context, c Caller) error {
	if own := namespaceName(c.Team, c.User); c.Namespace == own || c.Namespace == distinctName(own, c.Team, c.User) {
		_, err := s.derived(ctx, c.Team, c.User)
		return err
	}
	return createNamespace(ctx, s.client, c.Namespace)
}

// createNamespace makes sure that a namespace exists, whoever it belongs to.
func createNamespace(ctx context.Context, c client.Client, name string) error {
	ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelManagedBy: managedBy}}}
	if err := c.Create(ctx, &ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}
