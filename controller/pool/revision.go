package pool

import (
	"encoding/json"
	"hash/fnv"
	"strconv"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Revision names the shape of a pool's Pods: the FNV-32a hash, in hexadecimal, of the spec without what a Pod does
// not show. A change of it replaces idle Pods. The number of replicas, the default timeouts, the pace of a rollout
// and the template's name are left out, and so is the sandbox image where idle Pods do not run it.
func Revision(spec *v1alpha1.SandboxPoolSpec) string {
	s := spec.DeepCopy()
	s.Replicas, s.TemplateName = 0, ""
	s.DefaultStartupTimeout, s.DefaultIdleTimeout, s.MaxUnavailable = nil, nil, nil
	if s.PodCreationImagePolicy == "" {
		s.PodCreationImagePolicy = v1alpha1.IdleImage
	}
	delete(s.Template.Labels, v1alpha1.LabelTemplateHash)
	if len(s.Template.Labels) == 0 {
		s.Template.Labels = nil
	}
	if len(s.Template.Annotations) == 0 {
		s.Template.Annotations = nil
	}
	if len(s.Template.Spec.Containers) > 0 && StartsIdle(s) {
		s.Template.Spec.Containers[0].Image = s.IdleImage
	}
	if s.Gateway != nil && !s.Gateway.Enabled {
		s.Gateway = nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		// Only a RawExtension that holds no JSON fails to marshal; the API server never stores one.
		data = []byte(err.Error())
	}
	h := fnv.New32a()
	_, _ = h.Write(data)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// StartsIdle reports whether the pool's Pods start on the idle image rather than the sandbox image.
func StartsIdle(spec *v1alpha1.SandboxPoolSpec) bool {
	return spec.PodCreationImagePolicy != v1alpha1.PoolDefaultImage && spec.IdleImage != ""
}

// MainImage is the image that an idle Pod's first container runs.
func MainImage(spec *v1alpha1.SandboxPoolSpec) string {
	if StartsIdle(spec) {
		return spec.IdleImage
	}
	if len(spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return spec.Template.Spec.Containers[0].Image
}
