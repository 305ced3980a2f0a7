package env

import (
	"encoding/json"
	"maps"
	"slices"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// givenKeys are the keys of labels and annotations that a member's Pods have from the template, and its pool from the
// env. A key that is removed there is removed here by them; keys that somebody else added stay.
type givenKeys struct {
	PodLabels       []string `json:"podLabels,omitempty"`
	PodAnnotations  []string `json:"podAnnotations,omitempty"`
	PoolAnnotations []string `json:"poolAnnotations,omitempty"`
}

// readGivenKeys reads what writeTo left; nothing where it did not.
func readGivenKeys(annotations map[string]string) (g givenKeys) {
	_ = json.Unmarshal([]byte(annotations[v1alpha1.AnnotationGivenKeys]), &g)
	return g
}

func (g givenKeys) writeTo(annotations map[string]string) {
	text, _ := json.Marshal(g) // strings are always JSON
	annotations[v1alpha1.AnnotationGivenKeys] = string(text)
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// regiven is have with the keys that were given before replaced by what is given now.
func regiven(have map[string]string, before []string, now map[string]string) map[string]string {
	if len(have) == 0 {
		return now
	}
	out := maps.Clone(have)
	for _, key := range before {
		delete(out, key)
	}
	maps.Copy(out, now)
	return out
}
