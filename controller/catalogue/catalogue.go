// Package catalogue holds what a deployment declares in its configuration file: the shapes that pools may take
// (instance types), how much of them a team or user may hold (quotas), and which optional features are on.
package catalogue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Catalogue is the content of the configuration file. The zero value declares nothing and has every gate off.
type Catalogue struct {
	// FeatureGates are the optional features. Absent ones follow from the rest of the file: quotas and instance types
	// are on when some are declared, volumes always are.
	FeatureGates  FeatureGates   `json:"featureGates,omitzero"`
	InstanceTypes []InstanceType `json:"instanceTypes,omitempty"`
	Quotas        []Quota        `json:"quotas,omitempty"`
	// PoolSizing holds for every template that says nothing itself: billed, free-form or either (the default).
	PoolSizing PoolSizing `json:"poolSizing,omitempty"`
}

// FeatureGates says which optional features are on; nil leaves it to the rest of the catalogue.
type FeatureGates struct {
	Quota        *bool `json:"quota,omitempty"`
	InstanceType *bool `json:"instanceType,omitempty"`
	Volumes      *bool `json:"volumes,omitempty"`
}

// PoolSizing says how a member pool declares its size.
type PoolSizing string

// The ways to size a pool.
const (
	SizingBilled   PoolSizing = "billed"    // a quota label and an instance type
	SizingFreeForm PoolSizing = "free-form" // inlineResources only
	SizingEither   PoolSizing = "either"    // the caller's choice
)

// InstanceType is one shape. Quantities are Kubernetes quantities.
type InstanceType struct {
	Name          string        `json:"name"`
	ShowName      string        `json:"showName,omitempty"`
	Description   string        `json:"description,omitempty"`
	BaseResources BaseResources `json:"baseResources"`
	// MaxMultiplier caps the multiplier of a pool; 0 is no cap.
	MaxMultiplier int32 `json:"maxMultiplier,omitempty"`
	// Cost is relative, per unit.
	Cost       float64           `json:"cost,omitempty"`
	Extensions map[string]string `json:"extensions,omitempty"`
}

// BaseResources are what one unit of an instance type is.
type BaseResources struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// Quota is how many units of each instance type a team, or one user of it, may hold.
type Quota struct {
	// ID names the quota object; a DNS label.
	ID string `json:"id"`
	// Name is the quota url that a pool carries in its label quota.scitix.ai/url; the id when empty.
	Name string `json:"name,omitempty"`
	// Team and User are whose it is; empty is anybody's.
	Team string `json:"team,omitempty"`
	User string `json:"user,omitempty"`
	// Total is units by instance type. A type that is not listed has none, unless SkipCheck says otherwise.
	Total map[string]int64 `json:"total,omitempty"`
	// SkipCheck leaves the quota uncapped: only stock decides.
	SkipCheck bool `json:"skipCheck,omitempty"`
	// PoolType is exclusive, shared, ondemand, idle or spot; PoolName is free.
	PoolType string `json:"poolType,omitempty"`
	PoolName string `json:"poolName,omitempty"`
}

// maxFile bounds the configuration file, 1 MiB: it is written by people.
const maxFile = 1 << 20

// Load reads the file. An empty path is an empty catalogue.
func Load(path string) (*Catalogue, error) {
	if path == "" {
		return &Catalogue{}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("catalogue: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("catalogue %s: %w", path, err)
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("catalogue %s: %w", path, err)
	}
	return c, nil
}

// Parse reads a catalogue from YAML or JSON, strictly: unknown and repeated keys are errors.
func Parse(data []byte) (*Catalogue, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	c := &Catalogue{}
	if len(bytes.TrimSpace(data)) == 0 {
		return c, nil
	}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Type returns an instance type by name.
func (c *Catalogue) Type(name string) (InstanceType, bool) {
	i := slices.IndexFunc(c.InstanceTypes, func(t InstanceType) bool { return t.Name == name })
	if i < 0 {
		return InstanceType{}, false
	}
	return c.InstanceTypes[i], true
}

// Size is an instance type times a multiplier (below 1 counts as 1). The bool is false for a type that is not declared.
func (c *Catalogue) Size(instanceType string, multiplier int32) (corev1.ResourceRequirements, bool) {
	t, known := c.Type(instanceType)
	if !known {
		return corev1.ResourceRequirements{}, false
	}
	times := func(l corev1.ResourceList) corev1.ResourceList {
		if len(l) == 0 {
			return nil
		}
		out := corev1.ResourceList{}
		for name, q := range l {
			q = q.DeepCopy()
			q.Mul(int64(max(multiplier, 1)))
			out[name] = q
		}
		return out
	}
	return corev1.ResourceRequirements{Requests: times(t.BaseResources.Requests), Limits: times(t.BaseResources.Limits)}, true
}

// QuotaOn reports whether quotas are in use.
func (c *Catalogue) QuotaOn() bool { return gate(c.FeatureGates.Quota, len(c.Quotas) > 0) }

// InstanceTypeOn reports whether instance types are in use.
func (c *Catalogue) InstanceTypeOn() bool {
	return gate(c.FeatureGates.InstanceType, len(c.InstanceTypes) > 0)
}

// VolumesOn reports whether environments may mount volumes.
func (c *Catalogue) VolumesOn() bool { return gate(c.FeatureGates.Volumes, true) }

func gate(said *bool, otherwise bool) bool {
	if said != nil {
		return *said
	}
	return otherwise
}

func (c *Catalogue) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	switch c.PoolSizing {
	case "", SizingBilled, SizingFreeForm, SizingEither:
	default:
		fail("poolSizing is %q, and must be billed, free-form or either", c.PoolSizing)
	}
	types := map[string]bool{}
	for i, t := range c.InstanceTypes {
		where := fmt.Sprintf("instanceTypes[%d] (%s)", i, t.Name)
		if problems := validation.IsDNS1123Subdomain(t.Name); len(problems) > 0 {
			fail("%s: name: %s", where, problems[0])
		}
		if types[t.Name] {
			fail("%s: the name is there twice", where)
		}
		types[t.Name] = true
		if len(t.BaseResources.Limits) == 0 && len(t.BaseResources.Requests) == 0 {
			fail("%s: baseResources needs limits or requests", where)
		}
		for _, list := range []corev1.ResourceList{t.BaseResources.Limits, t.BaseResources.Requests} {
			for name, q := range list {
				if q.Cmp(resource.Quantity{}) <= 0 {
					fail("%s: %s must be greater than 0", where, name)
				}
			}
		}
		if t.MaxMultiplier < 0 {
			fail("%s: maxMultiplier must be 0 (no cap) or more", where)
		}
		if t.Cost < 0 {
			fail("%s: cost must be 0 or more", where)
		}
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for i := range c.Quotas {
		q := &c.Quotas[i]
		if q.Name == "" {
			q.Name = q.ID
		}
		where := fmt.Sprintf("quotas[%d] (%s)", i, q.ID)
		if problems := validation.IsDNS1123Label(q.ID); len(problems) > 0 {
			fail("%s: id: %s", where, problems[0])
		}
		if problems := validation.IsValidLabelValue(q.Name); len(problems) > 0 {
			fail("%s: name: it is a label value on pools: %s", where, problems[0])
		}
		if ids[q.ID] || names[q.Name] {
			fail("%s: the id or name is there twice", where)
		}
		ids[q.ID], names[q.Name] = true, true
		if q.User != "" && q.Team == "" {
			fail("%s: a user's quota needs its team", where)
		}
		switch q.PoolType {
		case "", "exclusive", "shared", "ondemand", "idle", "spot":
		default:
			fail("%s: poolType is %q, and must be exclusive, shared, ondemand, idle or spot", where, q.PoolType)
		}
		for name, n := range q.Total {
			if !types[name] {
				fail("%s: total names the instance type %q, which instanceTypes does not have", where, name)
			}
			if n < 0 {
				fail("%s: total.%s must be 0 or more", where, name)
			}
		}
	}
	return errors.Join(errs...)
}
