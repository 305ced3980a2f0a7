package apiserver

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePod checks what the node agent relies on.
func validatePod(p *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if len(p.Spec.Containers) == 0 {
		errs = append(errs, field.Required(spec.Child("containers"), "a Pod needs at least one container"))
	}
	switch p.Spec.RestartPolicy {
	case corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
	default:
		errs = append(errs, field.NotSupported(spec.Child("restartPolicy"), p.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		errs = append(errs, field.Invalid(spec.Child("terminationGracePeriodSeconds"), *s, "must not be negative"))
	}
	volumes := sets.New[string]()
	for i, v := range p.Spec.Volumes {
		at := spec.Child("volumes").Index(i).Child("name")
		errs = append(errs, validateLabelName(v.Name, at)...)
		if volumes.Has(v.Name) {
			errs = append(errs, field.Duplicate(at, v.Name))
		}
		volumes.Insert(v.Name)
	}
	containers := sets.New[string]()
	allContainers(&p.Spec, func(c *corev1.Container, at *field.Path) {
		errs = append(errs, validateLabelName(c.Name, at.Child("name"))...)
		if containers.Has(c.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		containers.Insert(c.Name)
		errs = append(errs, validateContainer(&p.Spec, c, at)...)
	})
	return errs
}

func validateContainer(spec *corev1.PodSpec, c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(at.Child("image"), "name the image to run"))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(at.Child("image"), c.Image, "must not begin or end with white space"))
	}
	for i, e := range c.Env {
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") {
			errs = append(errs, field.Invalid(at.Child("env").Index(i).Child("name"), e.Name, "must not be empty or hold '='"))
		}
	}
	for i, port := range c.Ports {
		if port.ContainerPort < 1 || port.ContainerPort > 65535 {
			errs = append(errs, field.Invalid(at.Child("ports").Index(i).Child("containerPort"), port.ContainerPort, "must be 1 to 65535"))
		}
	}
	for i, m := range c.VolumeMounts {
		mount := at.Child("volumeMounts").Index(i)
		if !hasVolume(spec, m.Name) {
			errs = append(errs, field.NotFound(mount.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(mount.Child("mountPath"), "name where to mount the volume"))
		}
		if path.IsAbs(m.SubPath) || strings.Contains("/"+m.SubPath+"/", "/../") {
			errs = append(errs, field.Invalid(mount.Child("subPath"), m.SubPath, "must be relative and must not contain '..'"))
		}
	}
	return append(errs, validateResources(&c.Resources, at.Child("resources"))...)
}

func validateResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, q := range r.Limits {
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(name)), q.String(), "must not be negative"))
		}
	}
	for name, q := range r.Requests {
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), q.String(), "must not be negative"))
		}
		if limit, ok := r.Limits[name]; ok && q.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), q.String(), fmt.Sprintf("must not be more than the limit, %s", limit.String())))
		}
	}
	return errs
}

// validateLabelName checks an RFC 1123 label.
func validateLabelName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "a name is needed")}
	}
	var errs field.ErrorList
	for _, msg := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(at, name, msg))
	}
	return errs
}
