package native

import (
	"context"
	"encoding/json"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// dryRunResult is DryRunResult of the document.
type dryRunResult struct {
	Valid    bool        `json:"valid"`
	Changes  []change    `json:"changes"`
	Cascade  []reference `json:"cascade"`
	Warnings []string    `json:"warnings"`
}

// change is one difference that a write would make. Before is absent for what is new, After for what goes.
type change struct {
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
	Effect string `json:"effect"`
}

type reference struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// plan is what a write would do.
type plan struct {
	// before and after are what the object's editable part is and would be; nil before a create.
	before, after any
	cascade       []reference
	warnings      []string
}

func (p plan) response() *response {
	r := dryRunResult{Valid: true, Changes: []change{}, Cascade: []reference{}, Warnings: []string{}}
	if p.after != nil {
		r.Changes = differences(p.before, p.after)
	}
	r.Cascade = append(r.Cascade, p.cascade...)
	r.Warnings = append(r.Warnings, p.warnings...)
	return ok(r)
}

// differences compares two objects as JSON, key by key; lists are compared whole.
func differences(before, after any) []change {
	out := []change{}
	var walk func(path string, b, a any)
	walk = func(path string, b, a any) {
		bm, bIsMap := b.(map[string]any)
		am, aIsMap := a.(map[string]any)
		if (bIsMap || b == nil) && (aIsMap || a == nil) && (bIsMap || aIsMap) {
			keys := map[string]bool{}
			for k := range bm {
				keys[k] = true
			}
			for k := range am {
				keys[k] = true
			}
			for _, k := range sortedNames(keys) {
				sub := k
				if path != "" {
					sub = path + "." + k
				}
				walk(sub, bm[k], am[k])
			}
			return
		}
		switch {
		case reflect.DeepEqual(b, a):
		case a == nil:
			out = append(out, change{Path: path, Before: b, Effect: "clear"})
		default:
			out = append(out, change{Path: path, Before: b, After: a, Effect: "set"})
		}
	}
	walk("", asJSON(before), asJSON(after))
	return out
}

// asJSON is a value as its JSON reads: maps, lists, strings, numbers.
func asJSON(v any) any {
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil // our own plain types always encode
	}
	var out any
	_ = json.Unmarshal(raw, &out)
	return out
}

// maxConflicts bounds how often a write starts over because the object's status or a sibling changed meanwhile.
const maxConflicts = 20

// retryConflicts runs a read-check-write until no other writer comes between. Each round reads again, so that
// preconditions are checked against what is written over.
func retryConflicts(ctx context.Context, f func() error) error {
	var err error
	for range maxConflicts {
		if err = f(); !apierrors.IsConflict(err) {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return err
}
