package env

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Inputs is what a member's pool is rendered from.
type Inputs struct {
	Env      *v1alpha1.SandboxEnv
	Member   *v1alpha1.Member
	Template *v1alpha1.SandboxTemplate
	// Size is the size of one Pod where the member names an instance type; nil leaves the member's inline resources,
	// or else the template's.
	Size *corev1.ResourceRequirements
	// PullSecret is true when the env's pull Secret exists.
	PullSecret bool
}

// Render makes the spec of a member's pool. It is pure. Where the member does not update by itself, the shape that
// was rendered first stays, and only what does not touch Pods follows the env.
func Render(in Inputs) (v1alpha1.SandboxPoolSpec, error) {
	frozen := in.Member.Spec
	spec := v1alpha1.SandboxPoolSpec{
		TemplateName:   in.Template.Name,
		MaxUnavailable: strategyOf(in, func(s *v1alpha1.UpdateStrategy) bool { return s.MaxUnavailable != nil }).MaxUnavailable,
	}
	switch {
	case frozen != nil:
		spec.Replicas = frozen.Replicas
	case in.Member.Config.MinReplicas != nil:
		spec.Replicas = *in.Member.Config.MinReplicas
	}
	over := in.Env.Spec.Overrides
	if over == nil {
		over = &v1alpha1.EnvOverrides{}
	}
	spec.DefaultStartupTimeout, spec.DefaultIdleTimeout = over.DefaultStartupTimeout, over.DefaultIdleTimeout
	if !followsTemplate(in) {
		spec.TemplateBlock = *frozen.TemplateBlock.DeepCopy()
		spec.PodCreationImagePolicy, spec.Gateway = frozen.PodCreationImagePolicy, frozen.Gateway.DeepCopy()
		spec.TemplateName = frozen.TemplateName
		return spec, nil
	}

	spec.TemplateBlock = *in.Template.Spec.TemplateBlock.DeepCopy()
	spec.PodCreationImagePolicy = v1alpha1.IdleImage
	if over.PodCreationImagePolicy != "" {
		spec.PodCreationImagePolicy = over.PodCreationImagePolicy
	}
	spec.Gateway = over.Gateway.DeepCopy()
	for i := range spec.Runtimes {
		if spec.Runtimes[i].Protocol == "" {
			spec.Runtimes[i].Protocol = corev1.ProtocolTCP
		}
	}
	if frozen != nil {
		// Keys that an admission plugin added to the Pods' metadata survive a new rendering.
		var before givenKeys
		if in.Member.Metadata != nil {
			before = readGivenKeys(in.Member.Metadata.Annotations)
		}
		spec.Template.Labels = regiven(frozen.Template.Labels, before.PodLabels, spec.Template.Labels)
		spec.Template.Annotations = regiven(frozen.Template.Annotations, before.PodAnnotations, spec.Template.Annotations)
	}
	pod := &spec.Template.Spec
	if len(pod.Containers) == 0 {
		return spec, fmt.Errorf("template %q has no container; its first container is the sandbox", in.Template.Name)
	}
	main := &pod.Containers[0]
	if main.Image == "" && over.Image == "" {
		return spec, fmt.Errorf("template %q gives its first container no image; set one there or in overrides.image", in.Template.Name)
	}
	if over.Image != "" {
		main.Image = over.Image
	}
	switch {
	case in.Member.Config.InlineResources != nil:
		main.Resources = *in.Member.Config.InlineResources.DeepCopy()
	case in.Size != nil:
		main.Resources = *in.Size.DeepCopy()
	}
	if in.PullSecret {
		ref := corev1.LocalObjectReference{Name: PullSecretName(in.Env.Name)}
		if !slices.Contains(pod.ImagePullSecrets, ref) {
			pod.ImagePullSecrets = append(pod.ImagePullSecrets, ref)
		}
	}
	if err := mountVolumes(pod, over.Volumes, in.Template); err != nil {
		return spec, err
	}
	return spec, nil
}

// isRendered tells a rendered pool spec from the replicas that a person wrote.
func isRendered(s *v1alpha1.SandboxPoolSpec) bool {
	return s != nil && len(s.Template.Spec.Containers) > 0
}

// strategyOf returns the member's update strategy where it says something, else the env's, else an empty one.
func strategyOf(in Inputs, says func(*v1alpha1.UpdateStrategy) bool) *v1alpha1.UpdateStrategy {
	if s := in.Member.Config.UpdateStrategy; s != nil && says(s) {
		return s
	}
	if o := in.Env.Spec.Overrides; o != nil && o.UpdateStrategy != nil && says(o.UpdateStrategy) {
		return o.UpdateStrategy
	}
	return &v1alpha1.UpdateStrategy{}
}

func autoUpdate(in Inputs) bool {
	return ptr.Deref(strategyOf(in, func(s *v1alpha1.UpdateStrategy) bool { return s.AutoUpdate != nil }).AutoUpdate, true)
}

// followsTemplate reports whether the member's Pods follow the template as it is now, rather than as it was when they
// were rendered first.
func followsTemplate(in Inputs) bool { return autoUpdate(in) || !isRendered(in.Member.Spec) }

// mountVolumes mounts the env's volumes into the sandbox container. Read-only is put on the volume itself, so that
// no mount of it can write.
func mountVolumes(pod *corev1.PodSpec, volumes []v1alpha1.VolumeMount, template *v1alpha1.SandboxTemplate) error {
	for i, v := range volumes {
		readOnly := ptr.Deref(v.ReadOnly, true)
		if readOnly && !allowsUnenforceable(template) {
			if why := undoesReadOnly(pod); why != "" {
				return fmt.Errorf("volume %q is read-only, but template %q %s and could undo that; mount it writable, or have an administrator set the annotation %s: \"true\" on the template",
					v.ClaimName, template.Name, why, v1alpha1.AnnotationAllowUnenforceableReadOnlyVolumes)
			}
		}
		name := "agentbox-volume-" + strconv.Itoa(i)
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.ClaimName, ReadOnly: readOnly},
		}})
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{
			Name: name, MountPath: v.MountPath, SubPath: v.SubPath, ReadOnly: readOnly,
		})
	}
	return nil
}

func allowsUnenforceable(t *v1alpha1.SandboxTemplate) bool {
	ok, err := strconv.ParseBool(t.Annotations[v1alpha1.AnnotationAllowUnenforceableReadOnlyVolumes])
	return err == nil && ok
}

// undoesReadOnly says what in a Pod could remount a read-only volume; empty when nothing could.
func undoesReadOnly(pod *corev1.PodSpec) string {
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			return "mounts a host path"
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if s := c.SecurityContext; s != nil {
			if ptr.Deref(s.Privileged, false) {
				return "runs a privileged container"
			}
			if s.Capabilities != nil && (slices.Contains(s.Capabilities.Add, "SYS_ADMIN") || slices.Contains(s.Capabilities.Add, "ALL") || slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN")) {
				return "adds the capability SYS_ADMIN"
			}
			if s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount {
				return "unmasks /proc"
			}
		}
		for _, m := range c.VolumeMounts {
			if ptr.Deref(m.MountPropagation, corev1.MountPropagationNone) == corev1.MountPropagationBidirectional {
				return "propagates mounts to the host"
			}
		}
	}
	return ""
}
