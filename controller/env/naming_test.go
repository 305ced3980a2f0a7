package env

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

func size(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestResourceKey(t *testing.T) {
	tests := []struct {
		requests, limits corev1.ResourceList
		want             string // empty: refused; a trailing * matches the rest
	}{
		{requests: size("cpu", "1", "memory", "2Gi"), want: "1c2gi"},
		{requests: size("cpu", "1000m", "memory", "2048Mi"), want: "1c2gi"},
		{limits: size("cpu", "4", "memory", "64Gi"), want: "4c64gi"},
		{requests: size("cpu", "1", "memory", "1Gi"), limits: size("cpu", "8", "memory", "8Gi"), want: "1c1gi"},
		{requests: size("cpu", "500m", "memory", "512Mi"), want: "500mc512mi"},
		{requests: size("cpu", "1500m", "memory", "2Gi"), want: "1500mc2gi"},
		{requests: size("cpu", "1", "memory", "1500Ki"), want: "1c1500ki"},
		{requests: size("cpu", "1", "memory", "1001"), want: "1c1001b"},
		{requests: size("cpu", "2"), want: "2c0gi"},
		{requests: size("cpu", "8", "memory", "64Gi", "nvidia.com/gpu", "1"), want: "8c64gi-1gpu-*"},
		{requests: size("cpu", "8", "memory", "64Gi", "nvidia.com/gpu", "0"), want: "8c64gi"},
		{},
		{requests: size("nvidia.com/gpu", "1")},
		{requests: size("cpu", "-1", "memory", "1Gi")},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.requests, tt.limits), func(t *testing.T) {
			got, err := ResourceKey(corev1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits})
			if (err != nil) != (tt.want == "") {
				t.Fatalf("key %q, error %v, want %q", got, err, tt.want)
			}
			if prefix, open := strings.CutSuffix(tt.want, "*"); open && !strings.HasPrefix(got, prefix) || !open && got != tt.want {
				t.Errorf("key %q, want %q", got, tt.want)
			}
		})
	}
}

// Shapes that the reference implementation takes for one another have keys of their own here.
func TestResourceKeysDiffer(t *testing.T) {
	seen := map[string]corev1.ResourceList{}
	for _, s := range []corev1.ResourceList{
		size("cpu", "1", "memory", "2Gi"), size("cpu", "900m", "memory", "2Gi"), size("cpu", "1", "memory", "2500Mi"),
		size("cpu", "1", "memory", "2Gi", "nvidia.com/gpu", "1"), size("cpu", "1", "memory", "2Gi", "nvidia.com/gpu", "2"),
		size("cpu", "1", "memory", "2Gi", "amd.com/gpu", "1"), size("cpu", "1", "memory", "2Gi", "ephemeral-storage", "1Gi"),
		size("cpu", "1", "memory", "2Gi", "a.example/a-resource-with-a-very-long-name", "1", "b.example/another-long-one", "12345", "c.example/third", "9"),
	} {
		key, err := ResourceKey(corev1.ResourceRequirements{Requests: s})
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%v and %v are both %q", s, other, key)
		}
		seen[key] = s
		if problems := validation.IsValidLabelValue(key); len(problems) > 0 {
			t.Errorf("key %q is no label value: %v", key, problems)
		}
		if problems := validation.IsDNS1123Label(PoolName("e", key, "")); len(problems) > 0 {
			t.Errorf("pool name of %q: %v", key, problems)
		}
	}
}

func FuzzResourceKey(f *testing.F) {
	f.Add(int64(1000), int64(2<<30), int64(0))
	f.Add(int64(1), int64(1), int64(1))
	f.Add(int64(-1), int64(1<<62), int64(-5))
	f.Fuzz(func(t *testing.T, milli, bytes, gpus int64) {
		list := corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(milli, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(bytes, resource.BinarySI),
			"nvidia.com/gpu":      *resource.NewQuantity(gpus, resource.DecimalSI),
		}
		key, err := ResourceKey(corev1.ResourceRequirements{Requests: list})
		if err != nil {
			return
		}
		if problems := validation.IsValidLabelValue(key); len(problems) > 0 {
			t.Errorf("%v: key %q: %v", list, key, problems)
		}
	})
}
