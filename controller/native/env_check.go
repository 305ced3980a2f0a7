package native

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
)

func isLabelValue(v string) bool { return v != "" && len(validation.IsValidLabelValue(v)) == 0 }

func checkKeySyntax(field, key, value string, label bool) error {
	if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
		return badBody("use another key", "%s: %q: %s", field, key, problems[0])
	}
	if label {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return badBody("use another value, or put it into annotations", "%s: %s: %s", field, key, problems[0])
		}
	}
	return nil
}

// fixedField is a field that was fixed at create: what is in force, and what an update sent.
type fixedField struct {
	name      string
	now, sent any
}

// checkFixed holds an update to the fields that were fixed at create. The way out of each is the document's.
func (c *call) checkFixed(fields []fixedField) error {
	var message, hint []string
	for _, f := range fields {
		now, sent := asJSON(f.now), asJSON(f.sent)
		if reflect.DeepEqual(now, sent) || (isNothing(now) && isNothing(sent)) {
			continue
		}
		inForce := "is not set"
		if !isNothing(now) {
			raw, _ := json.Marshal(now) // it was JSON a moment ago
			inForce = "is " + string(raw)
		}
		change := "would be changed"
		if isNothing(sent) {
			change = "is missing"
		}
		message = append(message, fmt.Sprintf("%s was fixed at create: it %s and %s", f.name, inForce, change))
		if lever := c.lever(f.name); lever != "" {
			hint = append(hint, f.name+": send it unchanged, or "+lever)
		}
	}
	if len(message) == 0 {
		return nil
	}
	e := refuse(400, codeFixedField, "", "%s", strings.Join(message, "; "))
	e.hint = hint
	return e
}

func isNothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case string:
		return v == ""
	}
	return false
}

// lever is what the document says to do instead of changing a fixed field.
func (c *call) lever(field string) string {
	properties, _, _ := shapeOf(c.op.body)
	schema := properties[field]
	if schema == nil {
		return ""
	}
	x, _ := schema.Extensions["x-abx"].(map[string]any)
	lever, _ := x["lever"].(string)
	return lever
}

// checkVolumes holds an env's volumes to what is there: claims of the same namespace, bound, and read-only only where
// the Pod could not undo it.
func (c *call) checkVolumes(namespace string, o *envOverrides, template *v1alpha1.SandboxTemplate) error {
	if o == nil || len(o.Volumes) == 0 {
		return nil
	}
	if !c.Catalogue.VolumesOn() {
		return notImplemented("leave overrides.volumes out", "volumes are switched off on this deployment")
	}
	for i, v := range o.Volumes {
		at := fmt.Sprintf("overrides.volumes[%d]", i)
		for _, part := range strings.Split(v.SubPath, "/") {
			if part == ".." || strings.HasPrefix(v.SubPath, "/") {
				return badBody("name a folder inside the volume", "%s: subPath %q must be relative and without ..", at, v.SubPath)
			}
		}
		var pvc corev1.PersistentVolumeClaim
		err := c.read(c.ctx, namespace, v.ClaimName, &pvc)
		switch {
		case apierrors.IsNotFound(err), err == nil && access.Authorize(c.caller, access.VerbUse, objectOf(access.KindVolume, &pvc)) != nil:
			return badBody("list the volumes to see which there are", "%s: there is no claim %q in namespace %s", at, v.ClaimName, namespace)
		case err != nil:
			return err
		case pvc.Status.Phase != corev1.ClaimBound:
			return badBody("wait until it is bound", "%s: claim %q is %s, not Bound", at, v.ClaimName, pvc.Status.Phase)
		}
		if readOnly := v.ReadOnly == nil || *v.ReadOnly; readOnly {
			if why := undoesReadOnly(template); why != "" {
				return badBody("mount it with readOnly false, or use a template without that",
					"%s: a read-only mount means nothing on this template: %s", at, why)
			}
		}
	}
	return nil
}

// undoesReadOnly says what about a template's Pod would let a sandbox write to a read-only mount; empty when nothing.
func undoesReadOnly(t *v1alpha1.SandboxTemplate) string {
	if t == nil || t.Annotations[v1alpha1.AnnotationAllowUnenforceableReadOnlyVolumes] == "true" {
		return ""
	}
	pod := t.Spec.Template.Spec
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			return "volume " + v.Name + " is a hostPath"
		}
	}
	for _, list := range [][]corev1.Container{pod.Containers, pod.InitContainers} {
		for _, container := range list {
			for _, m := range container.VolumeMounts {
				if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
					return "container " + container.Name + " mounts with Bidirectional propagation"
				}
			}
			s := container.SecurityContext
			if s == nil {
				continue
			}
			if s.Privileged != nil && *s.Privileged {
				return "container " + container.Name + " is privileged"
			}
			if s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount {
				return "container " + container.Name + " has an unmasked /proc"
			}
			if s.Capabilities != nil {
				for _, capability := range s.Capabilities.Add {
					if capability == "SYS_ADMIN" || capability == "ALL" {
						return "container " + container.Name + " has the capability " + string(capability)
					}
				}
			}
		}
	}
	return ""
}

// writePullSecret makes the stored registry logins what an env's overrides ask for: new ones, the old ones, or none.
func (c *call) writePullSecret(env *v1alpha1.SandboxEnv, stored *corev1.Secret, o *envOverrides) error {
	if o == nil || o.ImagePullSecret == nil {
		if stored == nil || (o != nil && o.ImagePullSecretConfigured) {
			return nil
		}
		return client.IgnoreNotFound(c.Client.Delete(c.ctx, stored, client.Preconditions{UID: &stored.UID}))
	}
	data, err := dockerConfig(o.ImagePullSecret.Registries)
	if err != nil {
		return err
	}
	if stored != nil {
		stored.Data = map[string][]byte{corev1.DockerConfigJsonKey: data}
		return c.Client.Update(c.ctx, stored)
	}
	yes := true
	return c.Client.Create(c.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: pullSecretName(env.Name), Namespace: env.Namespace,
			Labels: map[string]string{v1alpha1.LabelEnv: env.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxEnv", Name: env.Name, UID: env.UID,
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: data},
	})
}

// dockerConfig is the file that registries' logins are kept in, as `docker login` writes it.
func dockerConfig(logins []registryLogin) ([]byte, error) {
	type entry struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Auth     []byte `json:"auth"`
	}
	auths := map[string]entry{}
	for i, l := range logins {
		if _, twice := auths[l.Registry]; twice {
			return nil, badBody("name each registry once", "overrides.imagePullSecret.registries[%d]: %s is there twice", i, l.Registry)
		}
		auths[l.Registry] = entry{Username: l.Username, Password: l.Password, Auth: []byte(l.Username + ":" + l.Password)}
	}
	return json.Marshal(map[string]any{"auths": auths})
}
