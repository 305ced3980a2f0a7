package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

// Missing is what a table shows where there is no value.
const Missing = "—"

// Decode reads one JSON value; numbers keep their digits (json.Number).
func Decode(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more follows after the value")
	}
	return v, nil
}

// Lookup returns the value at a path such as `status.phase` or `metadata["a.b/c"]`
// (registry.SplitPath); nil when there is none. The empty path is the value itself.
func Lookup(v any, path string) any {
	if path == "" {
		return v
	}
	found, _ := registry.Lookup(v, path)
	return found
}

// Empty reports whether there is nothing to show.
func Empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// Plain is the value as one string: lists joined by commas, maps as key=value
// pairs in the order of their keys. What is empty is the empty string.
func Plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		if v {
			return "true"
		}
		return "false"
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = Plain(x)
		}
		return strings.Join(parts, ",")
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			value := Plain(v[k])
			if m, ok := v[k].(map[string]any); ok && len(m) > 0 {
				value = "{" + value + "}"
			}
			parts = append(parts, k+"="+value)
		}
		return strings.Join(parts, " ")
	}
	return fmt.Sprint(v) // json.Number and the numbers that a query computes
}

// Cell is the value as a table shows it: one safe line, or Missing.
func Cell(v any) string {
	if Empty(v) {
		return Missing
	}
	return text.Line(Plain(v))
}
