package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/embedded/image"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is an ordered set of variables; setting one again replaces it.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) lookup(name string) (string, bool) {
	v, ok := e.values[name]
	return v, ok
}

func (e *environment) list() []string {
	out := make([]string, 0, len(e.names))
	for _, n := range e.names {
		out = append(out, n+"="+e.values[n])
	}
	return out
}

// env puts the environment of a container together: the image's, then envFrom, then env.
func (w *worker) env(ctx context.Context, spec *corev1.Container, img *image.Image, home string) (*environment, error) {
	e := &environment{values: map[string]string{}}
	e.set("PATH", defaultPath)
	e.set("HOSTNAME", hostname(w.state.Name))
	e.set("HOME", home)
	for _, kv := range img.Config.Env {
		name, value, _ := strings.Cut(kv, "=")
		e.set(name, value)
	}
	for _, from := range spec.EnvFrom {
		var data map[string][]byte
		var err error
		switch {
		case from.SecretRef != nil:
			data, err = w.ref(ctx, "Secret", from.SecretRef.Name, from.SecretRef.Optional)
		case from.ConfigMapRef != nil:
			data, err = w.ref(ctx, "ConfigMap", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for _, key := range sortedKeys(data) {
			e.set(from.Prefix+key, string(data[key]))
		}
	}
	for i := range spec.Env {
		v := &spec.Env[i]
		value := expand(v.Value, e.lookup)
		if v.ValueFrom != nil {
			got, ok, err := w.valueFrom(ctx, spec, v.ValueFrom)
			if err != nil {
				return nil, fmt.Errorf("environment variable %s: %w", v.Name, err)
			}
			if !ok {
				continue
			}
			value = got
		}
		e.set(v.Name, value)
	}
	return e, nil
}

func sortedKeys(m map[string][]byte) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// valueFrom returns the value; ok is false when an optional source does not exist.
func (w *worker) valueFrom(ctx context.Context, spec *corev1.Container, from *corev1.EnvVarSource) (value string, ok bool, err error) {
	switch {
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		return w.key(ctx, "Secret", r.Name, r.Key, r.Optional)
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		return w.key(ctx, "ConfigMap", r.Name, r.Key, r.Optional)
	case from.FieldRef != nil:
		value, err = w.field(from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = resourceField(spec, from.ResourceFieldRef)
		return value, err == nil, err
	}
	return "", false, fmt.Errorf("this source is not supported on this node; use secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef")
}

func (w *worker) key(ctx context.Context, kind, name, key string, optional *bool) (string, bool, error) {
	data, err := w.ref(ctx, kind, name, optional)
	if err != nil {
		return "", false, err
	}
	if v, ok := data[key]; ok {
		return string(v), true, nil
	}
	if optional != nil && *optional {
		return "", false, nil
	}
	return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, w.pod.Namespace, name)
}

// ref reads a Secret or ConfigMap of the Pod's namespace, once for all containers of a start.
func (w *worker) ref(ctx context.Context, kind, name string, optional *bool) (map[string][]byte, error) {
	id := kind + "/" + name
	if data, ok := w.refs[id]; ok {
		return data, nil
	}
	data := map[string][]byte{}
	read := func(o metav1.GetOptions) error {
		if kind == "Secret" {
			s, err := w.agent.client.CoreV1().Secrets(w.pod.Namespace).Get(ctx, name, o)
			if err == nil {
				data = s.Data
			}
			return err
		}
		m, err := w.agent.client.CoreV1().ConfigMaps(w.pod.Namespace).Get(ctx, name, o)
		if err == nil {
			for k, v := range m.Data {
				data[k] = []byte(v)
			}
			maps.Copy(data, m.BinaryData)
		}
		return err
	}
	// From the server's cache, as a kubelet does; it may not have heard of what is new.
	err := read(metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		err = read(metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w.refs[id] = data
	return data, nil
}

// field returns a field of the Pod as the downward API names it.
func (w *worker) field(path string) (string, error) {
	switch path {
	case "metadata.name":
		return w.pod.Name, nil
	case "metadata.namespace":
		return w.pod.Namespace, nil
	case "metadata.uid":
		return string(w.pod.UID), nil
	case "spec.nodeName":
		return w.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return w.pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return w.state.IP, nil
	case "status.hostIP", "status.hostIPs":
		return "", nil // a sandbox cannot reach the machine
	}
	for prefix, values := range map[string]map[string]string{"metadata.labels['": w.pod.Labels, "metadata.annotations['": w.pod.Annotations} {
		if rest, ok := strings.CutPrefix(path, prefix); ok && strings.HasSuffix(rest, "']") {
			return values[strings.TrimSuffix(rest, "']")], nil
		}
	}
	return "", fmt.Errorf("the field %q is not available", path)
}

// resourceField returns a limit or request of a container, rounded up to the divisor.
func resourceField(spec *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := spec.Resources.Limits
	switch kind {
	case "limits":
	case "requests":
		list = spec.Resources.Requests
	default:
		return "", fmt.Errorf("the resource %q is not available", ref.Resource)
	}
	quantity := list[corev1.ResourceName(name)]
	if corev1.ResourceName(name) == corev1.ResourceCPU {
		divisor := ref.Divisor.MilliValue()
		if divisor <= 0 {
			divisor = 1000
		}
		return strconv.FormatInt((quantity.MilliValue()+divisor-1)/divisor, 10), nil
	}
	divisor := max(ref.Divisor.Value(), 1)
	return strconv.FormatInt((quantity.Value()+divisor-1)/divisor, 10), nil
}
