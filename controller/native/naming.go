package native

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resourceKey names a shape: `1c2gi` for whole cores and GiB, `500m1536mi` where they are not whole, and everything
// else a shape asks for behind it, so that different shapes never share a name. It is taken from the requests, or from
// the limits where there are none. The bool is false for a shape that asks for nothing.
func resourceKey(r corev1.ResourceRequirements) (string, bool) {
	list := r.Requests
	if len(list) == 0 {
		list = r.Limits
	}
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	if cpu.IsZero() && memory.IsZero() {
		return "", false
	}
	var b strings.Builder
	b.WriteString(cpuKey(cpu) + memoryKey(memory))
	names := make([]string, 0, len(list))
	for name := range list {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	for _, name := range names {
		q := list[corev1.ResourceName(name)]
		fmt.Fprintf(&b, "-%s%s", amount(q), labelText(name))
	}
	// Limits beyond the requests make another shape, too.
	if len(r.Requests) > 0 && len(r.Limits) > 0 && !sameList(r.Requests, r.Limits) {
		sum := sha256.Sum256([]byte(listText(r.Limits)))
		b.WriteString("-l" + hex.EncodeToString(sum[:])[:4])
	}
	return b.String(), true
}

func cpuKey(q resource.Quantity) string {
	if m := q.MilliValue(); m%1000 != 0 {
		return fmt.Sprintf("%dm", m)
	}
	return fmt.Sprintf("%dc", q.Value())
}

func memoryKey(q resource.Quantity) string {
	v := q.Value()
	for _, unit := range []struct {
		name string
		size int64
	}{{"gi", 1 << 30}, {"mi", 1 << 20}, {"ki", 1 << 10}} {
		if v%unit.size == 0 {
			return fmt.Sprintf("%d%s", v/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%db", v)
}

func amount(q resource.Quantity) string {
	return strings.ToLower(strings.ReplaceAll(q.String(), ".", "-"))
}

// labelText makes a resource name fit an object name: nvidia.com/gpu becomes nvidia-com-gpu.
func labelText(name string) string {
	return strings.Map(func(r rune) rune {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

func sameList(a, b corev1.ResourceList) bool { return listText(a) == listText(b) }

func listText(l corev1.ResourceList) string {
	out := make([]string, 0, len(l))
	for name, q := range l {
		out = append(out, string(name)+"="+q.String())
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// maxPoolName leaves room for the suffix of a Pod's name below the 63 characters of a label.
const maxPoolName = 57

// poolName derives a member pool's name from its env, its shape and its quota.
func poolName(env, key, quotaID string) string {
	name := env + "-" + key
	if quotaID != "" {
		name += "-" + quotaID
	}
	if len(name) <= maxPoolName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:maxPoolName-9], "-") + "-" + hex.EncodeToString(sum[:])[:8]
}
