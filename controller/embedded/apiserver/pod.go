package apiserver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NodeName is the name of the only node. There is no scheduler: a Pod that names no node gets this one when it is
// created.
const NodeName = "embedded"

func podResource() *resource {
	return &resource{
		version: "v1", plural: "pods", singular: "pod", shortNames: []string{"po"}, categories: []string{"all"}, namespaced: true,
		newObject: object[corev1.Pod], newList: object[corev1.PodList],
		prepareCreate: func(obj runtime.Object) {
			p := obj.(*corev1.Pod)
			p.Generation = 1
			p.Status = corev1.PodStatus{Phase: corev1.PodPending}
			if p.Spec.NodeName == "" {
				p.Spec.NodeName = NodeName
			}
		},
		prepareUpdate: func(obj, old runtime.Object) {
			p, o := obj.(*corev1.Pod), old.(*corev1.Pod)
			p.Status = o.Status
			if !equality.Semantic.DeepEqual(p.Spec, o.Spec) {
				p.Generation = o.Generation + 1
			}
		},
		prepareStatus: func(obj, old runtime.Object) {
			p, o := obj.(*corev1.Pod), old.(*corev1.Pod)
			p.Spec = o.Spec
			p.DeletionTimestamp = o.DeletionTimestamp
			p.OwnerReferences = o.OwnerReferences
		},
		validateCreate: func(obj runtime.Object) field.ErrorList { return validatePod(obj.(*corev1.Pod)) },
		validateUpdate: func(obj, old runtime.Object) field.ErrorList {
			return validatePodUpdate(obj.(*corev1.Pod), old.(*corev1.Pod))
		},
		fields: func(obj runtime.Object) fields.Set {
			p := obj.(*corev1.Pod)
			return fields.Set{
				"spec.nodeName":      p.Spec.NodeName,
				"spec.restartPolicy": string(p.Spec.RestartPolicy),
				"status.phase":       string(p.Status.Phase),
				"status.podIP":       p.Status.PodIP,
			}
		},
		gracePeriod: podGracePeriod,
		columns:     podColumns,
	}
}

// podGracePeriod settles how long a deleted Pod stays for the node agent to stop it. A Pod that has ended goes at once.
func podGracePeriod(obj runtime.Object, o *metav1.DeleteOptions) {
	p := obj.(*corev1.Pod)
	var period int64
	switch {
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
	case o.GracePeriodSeconds != nil:
		period = max(*o.GracePeriodSeconds, 0)
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = max(*p.Spec.TerminationGracePeriodSeconds, 0)
	}
	o.GracePeriodSeconds = &period
}

// validatePodUpdate lets images, tolerations and the deadline change and nothing else of the spec: a Pod is replaced,
// not edited.
func validatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	if equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return nil // claims change labels and annotations, and they are most of the writes
	}
	if errs := validatePod(p); len(errs) > 0 {
		return errs
	}
	spec := p.Spec.DeepCopy()
	path := field.NewPath("spec")
	if len(spec.Containers) != len(old.Spec.Containers) || len(spec.InitContainers) != len(old.Spec.InitContainers) {
		return field.ErrorList{field.Forbidden(path.Child("containers"), "containers cannot be added to or removed from a Pod; delete it and create another")}
	}
	for i := range spec.Containers {
		spec.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range spec.InitContainers {
		spec.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	spec.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	spec.Tolerations = old.Spec.Tolerations
	spec.TerminationGracePeriodSeconds = old.Spec.TerminationGracePeriodSeconds
	if !equality.Semantic.DeepEqual(*spec, old.Spec) {
		return field.ErrorList{field.Forbidden(path, "only container images, tolerations, activeDeadlineSeconds and terminationGracePeriodSeconds of a Pod can change; delete it and create another")}
	}
	return nil
}

// allContainers visits the init containers and then the containers of a Pod.
func allContainers(spec *corev1.PodSpec, visit func(c *corev1.Container, path *field.Path)) {
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i := range list.containers {
			visit(&list.containers[i], field.NewPath("spec", list.name).Index(i))
		}
	}
}

func hasVolume(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
}
