package catalogue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const sample = "../../deploy/catalogue.yaml"

func TestSample(t *testing.T) {
	c, err := Load(sample)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.InstanceTypes) == 0 || len(c.Quotas) == 0 || !c.QuotaOn() || !c.InstanceTypeOn() || !c.VolumesOn() {
		t.Errorf("the sample declares too little: %+v", c)
	}
	if _, ok := c.Type(c.InstanceTypes[0].Name); !ok {
		t.Error("a type of the sample is not found by its name")
	}
}

func TestSize(t *testing.T) {
	c, err := Parse([]byte("instanceTypes: [{name: small, baseResources: {requests: {cpu: 500m}, limits: {cpu: '1', memory: 2Gi}}}]"))
	if err != nil {
		t.Fatal(err)
	}
	for multiplier, want := range map[int32]string{0: "1 2Gi 500m", 1: "1 2Gi 500m", 3: "3 6Gi 1500m"} {
		r, ok := c.Size("small", multiplier)
		got := r.Limits.Cpu().String() + " " + r.Limits.Memory().String() + " " + r.Requests.Cpu().String()
		if !ok || got != want {
			t.Errorf("times %d: %s %v, want %s", multiplier, got, ok, want)
		}
	}
	if _, ok := c.Size("large", 1); ok {
		t.Error("an undeclared type has a size")
	}
	if got := c.InstanceTypes[0].BaseResources.Limits.Cpu().String(); got != "1" {
		t.Errorf("the type itself became %s", got)
	}
}

func TestNothingDeclared(t *testing.T) {
	for name, load := range map[string]func() (*Catalogue, error){
		"no path":    func() (*Catalogue, error) { return Load("") },
		"empty file": func() (*Catalogue, error) { return Parse([]byte("\n")) },
	} {
		c, err := load()
		if err != nil || c.QuotaOn() || c.InstanceTypeOn() || !c.VolumesOn() {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "missing.yaml")); err == nil {
		t.Error("a missing file is no error")
	}
}

func TestRefusals(t *testing.T) {
	const small = "instanceTypes: [{name: small, baseResources: {limits: {cpu: '1'}}}]\n"
	for want, text := range map[string]string{
		"unknown field":                   "instanceType: []",
		"already set":                     "poolSizing: billed\npoolSizing: either",
		"poolSizing":                      "poolSizing: free",
		"baseResources needs":             "instanceTypes: [{name: small}]",
		"the name is there twice":         "instanceTypes: [{name: a, baseResources: {limits: {cpu: 1}}}, {name: a, baseResources: {limits: {cpu: 1}}}]",
		"greater than 0":                  "instanceTypes: [{name: a, baseResources: {limits: {cpu: 0}}}]",
		"quantities must match":           "instanceTypes: [{name: a, baseResources: {limits: {cpu: many}}}]",
		"maxMultiplier":                   "instanceTypes: [{name: a, maxMultiplier: -1, baseResources: {limits: {cpu: 1}}}]",
		"which instanceTypes does not":    small + "quotas: [{id: q, total: {large: 1}}]",
		"must be 0 or more":               small + "quotas: [{id: q, total: {small: -1}}]",
		"needs its team":                  small + "quotas: [{id: q, user: alice}]",
		"id or name is there twice":       small + "quotas: [{id: q}, {id: p, name: q}]",
		"poolType":                        small + "quotas: [{id: q, poolType: cheap}]",
		"it is a label value on pools":    small + "quotas: [{id: q, name: 'a b'}]",
		"it is larger than 1048576 bytes": strings.Repeat(" ", maxFile+1),
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	if raw, err := os.ReadFile(sample); err == nil {
		f.Add(raw)
	}
	f.Add([]byte("quotas: [{id: q, total: {small: 9223372036854775807}}]"))
	f.Add([]byte("instanceTypes: [{name: a, baseResources: {limits: {cpu: 1e400}}}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
	})
}

func TestFollow(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	held := map[string]Holding{
		"n/gone":        {InstanceType: "small", Units: 1},
		"n/resized":     {InstanceType: "small", Units: 1},
		"pending/young": {InstanceType: "small", Units: 1, Since: now.Add(-time.Second)},
		"pending/dead":  {InstanceType: "small", Units: 1, Since: now.Add(-writeGrace - time.Second)},
	}
	follow(held, map[string]Holding{"n/resized": {InstanceType: "small", Units: 5}, "n/found": {InstanceType: "small", Units: 2}}, now)
	for name, units := range map[string]int64{"n/gone": 0, "n/resized": 5, "n/found": 2, "pending/young": 1, "pending/dead": 0} {
		if held[name].Units != units {
			t.Errorf("%s holds %d, want %d", name, held[name].Units, units)
		}
	}
}
