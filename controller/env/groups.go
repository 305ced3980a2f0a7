package env

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// syncGroups keeps exactly one scaling group per shape that a member of any cluster references: a missing one is
// added, switched off and with the default policy; one that nothing references goes, with its settings. It reports
// whether anything changed.
func syncGroups(spec *v1alpha1.SandboxEnvSpec) bool {
	wanted := map[string]bool{}
	for i := range spec.Clusters {
		for j := range spec.Clusters[i].Members {
			if g := spec.Clusters[i].Members[j].Config.ScalingGroup; g != "" {
				wanted[g] = true
			}
		}
	}
	var groups []v1alpha1.ScalingGroup
	if spec.Autoscaling != nil {
		groups = spec.Autoscaling.Groups
	}
	kept := slices.DeleteFunc(slices.Clone(groups), func(g v1alpha1.ScalingGroup) bool { return !wanted[g.Name] })
	changed := len(kept) != len(groups)
	for _, g := range kept {
		delete(wanted, g.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		kept = append(kept, DefaultGroup(name))
		changed = true
	}
	if changed {
		if spec.Autoscaling == nil {
			spec.Autoscaling = &v1alpha1.EnvAutoscaling{}
		}
		spec.Autoscaling.Groups = kept
	}
	return changed
}

// DefaultGroup is a scaling group that does nothing until somebody enables it. The values are the CRD's defaults.
func DefaultGroup(name string) v1alpha1.ScalingGroup {
	return v1alpha1.ScalingGroup{
		Name: name,
		ScaleUpPolicy: v1alpha1.ScaleUpPolicy{
			Mode:                       v1alpha1.ScaleDefault,
			CooldownSeconds:            ptr.To[int32](30),
			IdleThresholdSeconds:       ptr.To[int32](30),
			IdleZeroQuietWindowSeconds: ptr.To[int32](300),
			SaturationCooldownSeconds:  ptr.To[int32](60),
		},
		ScaleDownPolicy: v1alpha1.ScaleDownPolicy{
			IdleTimeoutSeconds:      ptr.To[int32](300),
			StabilizationSeconds:    ptr.To[int32](60),
			ProtectionWindowSeconds: ptr.To[int32](10),
		},
	}
}
