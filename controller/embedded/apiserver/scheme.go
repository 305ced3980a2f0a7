package apiserver

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// The scheme of the built-in types. Each published type is its own internal version: there is one version of each, so
// nothing needs converting.
var (
	scheme         = runtime.NewScheme()
	codecs         = serializer.NewCodecFactory(scheme)
	parameterCodec = runtime.NewParameterCodec(scheme)
	// published knows only what clients see, for the OpenAPI document.
	published = runtime.NewScheme()
)

func init() {
	register(corev1.SchemeGroupVersion,
		&corev1.Pod{}, &corev1.PodList{}, &corev1.PodLogOptions{},
		&corev1.Secret{}, &corev1.SecretList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{},
		&corev1.Namespace{}, &corev1.NamespaceList{},
		&corev1.Node{}, &corev1.NodeList{},
		&corev1.Event{}, &corev1.EventList{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{},
		&corev1.ResourceQuota{}, &corev1.ResourceQuotaList{},
	)
	register(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	registerEvents()
	if err := registerPodLogs(scheme); err != nil {
		panic(err) // both types are pointers
	}

	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	addDefaults(scheme)
	addFieldLabels(scheme)
}

func register(gv schema.GroupVersion, types ...runtime.Object) {
	published.AddKnownTypes(gv, types...)
	scheme.AddKnownTypes(gv, types...)
	scheme.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, types...)
	metav1.AddToGroupVersion(scheme, gv)
	if err := scheme.SetVersionPriority(gv); err != nil {
		panic(err) // the group was registered on the line above
	}
}
