package apiserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

const (
	readyLimit = 30 * time.Second
	readyPoll  = 5 * time.Millisecond
)

// manifestDigest on a CRD says which manifest it was made from.
const manifestDigest = v1alpha1.Prefix + "manifest-digest"

// protectedNamespaces exist always.
var protectedNamespaces = []string{"default", v1alpha1.SystemNamespace}

// ready makes sure that what every client may rely on is there, and waits until it is served.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	ctx, stop := s.untilFailure(ctx)
	defer stop()
	core, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	for _, name := range protectedNamespaces {
		if err := ensureNamespace(ctx, core, name); err != nil {
			return s.startError(ctx, fmt.Errorf("create the namespace %s: %w", name, err))
		}
	}
	crds, err := clientset.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	files, err := fs.Glob(v1alpha1.CRDs, "crds/*.yaml")
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := v1alpha1.CRDs.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		metav1.SetMetaDataAnnotation(&crd.ObjectMeta, manifestDigest, fmt.Sprintf("%x", sha256.Sum256(data)))
		if err := ensureCRD(ctx, crds, crd); err != nil {
			return s.startError(ctx, fmt.Errorf("install the CRD %s: %w", crd.Name, err))
		}
	}
	if err := s.awaitServed(ctx, core); err != nil {
		return s.startError(ctx, err)
	}
	return s.startError(ctx, s.awaitHooks(ctx))
}

// awaitHooks waits until the last of the server's own start has run.
func (s *Server) awaitHooks(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	err = untilAnswered(ctx, func() error {
		return c.Discovery().RESTClient().Get().AbsPath("/readyz/poststarthook/crd-informer-synced").Do(ctx).Error()
	})
	s.settled = err == nil
	return err
}

// untilFailure returns a context that also ends when the server does.
func (s *Server) untilFailure(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case err := <-s.failed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// startError names the cause of a start that ran out of time or lost what it stands on.
func (s *Server) startError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("start the API server: %w (%w)", context.Cause(ctx), err)
	}
	return err
}

func ensureNamespace(ctx context.Context, c kubernetes.Interface, name string) error {
	return untilAnswered(ctx, func() error {
		_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// ensureCRD creates the CRD or brings its spec up to date, and has it served at once.
func ensureCRD(ctx context.Context, c clientset.Interface, want *apiextensionsv1.CustomResourceDefinition) error {
	api := c.ApiextensionsV1().CustomResourceDefinitions()
	have, err := api.Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = api.Create(ctx, want, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(wait.Backoff{Steps: 20, Duration: readyPoll, Factor: 1.2, Jitter: 0.2}, func() error {
		if have == nil {
			if have, err = api.Get(ctx, want.Name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		crd := have
		have = nil // a conflict reads it again
		if digest := want.Annotations[manifestDigest]; crd.Annotations[manifestDigest] != digest {
			crd.Spec = want.Spec
			metav1.SetMetaDataAnnotation(&crd.ObjectMeta, manifestDigest, digest)
			if crd, err = api.Update(ctx, crd, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		if establish(crd) {
			_, err = api.UpdateStatus(ctx, crd, metav1.UpdateOptions{})
			return err
		}
		return nil
	})
}

// establish marks a CRD as accepted and established some time ago, and reports whether that changed anything. The CRD
// server holds the first object of a CRD back for two seconds after it was established, for the sake of other servers
// that may not know it yet; there are none here.
func establish(crd *apiextensionsv1.CustomResourceDefinition) bool {
	settled := metav1.NewTime(crd.CreationTimestamp.Add(-time.Minute))
	changed := false
	for _, want := range []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Reason: "NoConflicts", Message: "no conflicts found"},
		{Type: apiextensionsv1.Established, Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"},
	} {
		want.Status, want.LastTransitionTime = apiextensionsv1.ConditionTrue, settled
		changed = setCondition(&crd.Status, want) || changed
	}
	if !equality.Semantic.DeepEqual(crd.Status.AcceptedNames, crd.Spec.Names) {
		crd.Status.AcceptedNames = crd.Spec.Names
		changed = true
	}
	return changed
}

func setCondition(s *apiextensionsv1.CustomResourceDefinitionStatus, want apiextensionsv1.CustomResourceDefinitionCondition) bool {
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type != want.Type {
			continue
		}
		if c.Status == want.Status && !want.LastTransitionTime.Before(&c.LastTransitionTime) {
			return false
		}
		*c = want
		return true
	}
	s.Conditions = append(s.Conditions, want)
	return true
}

// awaitServed waits until each of the platform's types answers.
func (s *Server) awaitServed(ctx context.Context, c kubernetes.Interface) error {
	for _, plural := range v1alpha1.Plurals {
		path := "/apis/" + v1alpha1.GroupVersion.String() + "/" + plural
		err := untilAnswered(ctx, func() error {
			return c.Discovery().RESTClient().Get().AbsPath(path).Param("limit", "1").Do(ctx).Error()
		})
		if err != nil {
			return fmt.Errorf("wait for %s: %w", path, err)
		}
	}
	return nil
}

// untilAnswered repeats a request while the server is not up to it yet.
func untilAnswered(ctx context.Context, request func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(context.Context) (bool, error) {
		last = request()
		return last == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}
