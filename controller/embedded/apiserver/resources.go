package apiserver

import (
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resources are the built-in types: those that the controller, the node agent and kubectl's everyday commands need.
func resources() []*resource {
	return []*resource{
		podResource(),
		namespaceResource(),
		{
			version: "v1", plural: "secrets", singular: "secret", namespaced: true,
			newObject: object[corev1.Secret], newList: object[corev1.SecretList],
			prepareCreate: func(obj runtime.Object) { foldStringData(obj.(*corev1.Secret)) },
			prepareUpdate: func(obj, _ runtime.Object) { foldStringData(obj.(*corev1.Secret)) },
			validateUpdate: func(obj, old runtime.Object) field.ErrorList {
				s, o := obj.(*corev1.Secret), old.(*corev1.Secret)
				errs := immutable(o.Immutable, s.Immutable, reflect.DeepEqual(s.Data, o.Data))
				if s.Type != o.Type {
					errs = append(errs, field.Invalid(field.NewPath("type"), s.Type, "the type of a Secret cannot change; delete it and make another"))
				}
				return errs
			},
			fields: func(obj runtime.Object) fields.Set {
				return fields.Set{"type": string(obj.(*corev1.Secret).Type)}
			},
		},
		{
			version: "v1", plural: "configmaps", singular: "configmap", shortNames: []string{"cm"}, namespaced: true,
			newObject: object[corev1.ConfigMap], newList: object[corev1.ConfigMapList],
			validateUpdate: func(obj, old runtime.Object) field.ErrorList {
				c, o := obj.(*corev1.ConfigMap), old.(*corev1.ConfigMap)
				return immutable(o.Immutable, c.Immutable, reflect.DeepEqual(c.Data, o.Data) && reflect.DeepEqual(c.BinaryData, o.BinaryData))
			},
		},
		{
			version: "v1", plural: "nodes", singular: "node", shortNames: []string{"no"},
			newObject: object[corev1.Node], newList: object[corev1.NodeList],
			prepareCreate: func(runtime.Object) {},
			prepareUpdate: func(obj, old runtime.Object) { obj.(*corev1.Node).Status = old.(*corev1.Node).Status },
			prepareStatus: func(obj, old runtime.Object) { obj.(*corev1.Node).Spec = old.(*corev1.Node).Spec },
			columns:       nodeColumns,
		},
		eventResource(),
		{
			version: "v1", plural: "persistentvolumeclaims", singular: "persistentvolumeclaim", shortNames: []string{"pvc"}, namespaced: true,
			newObject: object[corev1.PersistentVolumeClaim], newList: object[corev1.PersistentVolumeClaimList],
			prepareCreate: func(obj runtime.Object) {
				obj.(*corev1.PersistentVolumeClaim).Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
			},
			prepareUpdate: func(obj, old runtime.Object) {
				obj.(*corev1.PersistentVolumeClaim).Status = old.(*corev1.PersistentVolumeClaim).Status
			},
			prepareStatus: func(obj, old runtime.Object) {
				obj.(*corev1.PersistentVolumeClaim).Spec = old.(*corev1.PersistentVolumeClaim).Spec
			},
			columns: claimColumns,
		},
		{
			version: "v1", plural: "resourcequotas", singular: "resourcequota", shortNames: []string{"quota"}, namespaced: true,
			newObject: object[corev1.ResourceQuota], newList: object[corev1.ResourceQuotaList],
			prepareCreate: func(obj runtime.Object) { obj.(*corev1.ResourceQuota).Status = corev1.ResourceQuotaStatus{} },
			prepareUpdate: func(obj, old runtime.Object) {
				obj.(*corev1.ResourceQuota).Status = old.(*corev1.ResourceQuota).Status
			},
			prepareStatus: func(obj, old runtime.Object) {
				obj.(*corev1.ResourceQuota).Spec = old.(*corev1.ResourceQuota).Spec
			},
		},
		{
			group: "coordination.k8s.io", version: "v1", plural: "leases", singular: "lease", namespaced: true,
			newObject: object[coordinationv1.Lease], newList: object[coordinationv1.LeaseList],
			columns: leaseColumns,
		},
	}
}

// object makes a new T as the registry wants it.
func object[T any, P interface {
	*T
	runtime.Object
}]() runtime.Object {
	return P(new(T))
}

// foldStringData does what the API promises of a Secret's stringData: it is written, never read.
func foldStringData(s *corev1.Secret) {
	for k, v := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

func immutable(was, is *bool, same bool) field.ErrorList {
	if was == nil || !*was || (same && is != nil && *is) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("data"), "the object is immutable; delete it and make another")}
}

func namespaceResource() *resource {
	return &resource{
		version: "v1", plural: "namespaces", singular: "namespace", shortNames: []string{"ns"},
		newObject: object[corev1.Namespace], newList: object[corev1.NamespaceList],
		prepareCreate: func(obj runtime.Object) {
			ns := obj.(*corev1.Namespace)
			ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			ns.Spec.Finalizers = nil
			if ns.Labels == nil {
				ns.Labels = map[string]string{}
			}
			if ns.Name != "" {
				ns.Labels[corev1.LabelMetadataName] = ns.Name
			}
			addFinalizer(ns, NamespaceFinalizer)
		},
		prepareUpdate: func(obj, old runtime.Object) { obj.(*corev1.Namespace).Status = old.(*corev1.Namespace).Status },
		prepareStatus: func(obj, old runtime.Object) { obj.(*corev1.Namespace).Spec = old.(*corev1.Namespace).Spec },
		validateCreate: func(obj runtime.Object) field.ErrorList {
			return validateLabelName(obj.(*corev1.Namespace).Name, field.NewPath("metadata", "name"))
		},
		fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"status.phase": string(obj.(*corev1.Namespace).Status.Phase)}
		},
		columns: namespaceColumns,
	}
}

func addFinalizer(obj metav1.Object, name string) {
	for _, f := range obj.GetFinalizers() {
		if f == name {
			return
		}
	}
	obj.SetFinalizers(append(obj.GetFinalizers(), name))
}

// addFieldLabels tells the scheme which fields selectors may name.
func addFieldLabels(s *runtime.Scheme) {
	for _, r := range resources() {
		if r.fields == nil {
			continue
		}
		known := r.fields(r.newObject())
		gvks, _, err := s.ObjectKinds(r.newObject())
		if err != nil {
			panic(err) // every resource's type is registered
		}
		for _, gvk := range gvks {
			if gvk.Version == runtime.APIVersionInternal {
				continue
			}
			_ = s.AddFieldLabelConversionFunc(gvk, func(label, value string) (string, string, error) {
				if _, ok := known[label]; ok {
					return label, value, nil
				}
				return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
			})
		}
	}
}
