package env

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxNameLength is how long an env's name may be, so that pool and Pod names derived from it still fit. The CRD and
// openapi/native.yaml enforce it.
const MaxNameLength = 24

// ResourceKey names the shape of a Pod: `1c2gi` is one core and two GiB. It is also the name of the scaling group of
// every pool of that shape. Different shapes have different keys: fractions are spelled out (`500mc`, `512mi`), and
// any other resource, a GPU for instance, adds its count and name (`8c64gi-1gpu-…`). Requests count; limits do where
// there are no requests.
func ResourceKey(r corev1.ResourceRequirements) (string, error) {
	size := r.Requests
	if len(size) == 0 {
		size = r.Limits
	}
	cpu, memory := size[corev1.ResourceCPU], size[corev1.ResourceMemory]
	if cpu.IsZero() && memory.IsZero() {
		return "", fmt.Errorf("a pool needs a size: set cpu and memory in inlineResources.requests, or name an instanceType")
	}
	if cpu.Sign() < 0 || memory.Sign() < 0 {
		return "", fmt.Errorf("a pool's cpu and memory must not be negative")
	}
	return shorten(cpuKey(cpu) + memoryKey(memory) + otherKey(size)), nil
}

// maxKeyLength leaves room for the longest env's name in a pool's name, which is a label value.
const maxKeyLength = 63 - MaxNameLength - 1

// shorten cuts a key that is too long and makes up for what is lost by a hash of it.
func shorten(key string) string {
	if len(key) <= maxKeyLength {
		return key
	}
	return key[:maxKeyLength-9] + "-" + hash(key)
}

func hash(s string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return fmt.Sprintf("%08x", h.Sum32())
}

func cpuKey(q resource.Quantity) string {
	if milli := q.MilliValue(); milli%1000 != 0 {
		return fmt.Sprintf("%dmc", milli)
	}
	return fmt.Sprintf("%dc", q.Value())
}

func memoryKey(q resource.Quantity) string {
	bytes := q.Value()
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 30, "gi"}, {1 << 20, "mi"}, {1 << 10, "ki"}} {
		if bytes%unit.size == 0 {
			return fmt.Sprintf("%d%s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%db", bytes)
}

// otherKey spells out what is neither CPU nor memory. The hash tells resources apart whose last name is the same.
func otherKey(size corev1.ResourceList) string {
	var exact []string
	var short strings.Builder
	names := make([]string, 0, len(size))
	for name, q := range size {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !q.IsZero() {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	for _, name := range names {
		q := size[corev1.ResourceName(name)]
		exact = append(exact, name+"="+q.String())
		last := name[strings.LastIndexByte(name, '/')+1:]
		if len(last) > 12 {
			last = last[:12]
		}
		fmt.Fprintf(&short, "-%d%s", q.Value(), strings.Trim(labelSafe(last), "-"))
	}
	return short.String() + "-" + hash(strings.Join(exact, ","))
}

func labelSafe(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
}

// PoolName is the name of an env's pool of a shape. quota is the short name of the quota that pays for it, or empty.
func PoolName(env, resourceKey, quota string) string {
	if quota == "" {
		return env + "-" + resourceKey
	}
	return env + "-" + resourceKey + "-" + quota
}

// PullSecretName names the Secret with an env's image pull credentials.
func PullSecretName(env string) string { return "ips-" + env }
