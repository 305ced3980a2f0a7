package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// NamespaceFinalizer holds a deleted namespace until its content is gone; the collector removes it.
const NamespaceFinalizer = "agentbox.navix.sh/namespace-content"

// namespaceAdmission refuses to create objects in a namespace that is missing or going, and to delete the namespaces
// that the platform cannot do without.
type namespaceAdmission struct {
	// namespaces is set once the storage is built, before anything is served.
	namespaces rest.Getter
	protected  []string
}

var _ admission.ValidationInterface = &namespaceAdmission{}

func (n *namespaceAdmission) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Delete
}

func (n *namespaceAdmission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	isNamespace := a.GetResource().GroupResource() == schema.GroupResource{Resource: "namespaces"}
	if a.GetOperation() == admission.Delete {
		for _, name := range n.protected {
			if isNamespace && a.GetName() == name {
				return apierrors.NewForbidden(a.GetResource().GroupResource(), name, fmt.Errorf("the platform needs this namespace"))
			}
		}
		return nil
	}
	if isNamespace || a.GetNamespace() == "" || a.GetSubresource() != "" {
		return nil
	}
	ns, err := n.get(ctx, a.GetNamespace())
	if err != nil {
		return err
	}
	if ns.DeletionTimestamp != nil {
		err := apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ns.Name))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", ns.Name), Field: "metadata.namespace",
		})
		return err
	}
	return nil
}

// get reads the namespace from the watch cache, and from the store when the cache does not have it yet.
func (n *namespaceAdmission) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	ctx = request.WithNamespace(ctx, "")
	obj, err := n.namespaces.Get(ctx, name, &metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		obj, err = n.namespaces.Get(ctx, name, &metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) { // the storage would name the kind of the object that is created
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Namespace), nil
}
