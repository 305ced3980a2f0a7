package registry

import (
	"fmt"
	"strconv"
	"strings"
)

// SplitPath splits a path of columns and details into property names. Names are
// joined by dots; a name that holds other characters stands quoted in brackets:
// metadata["quota.scitix.ai/pool-type"].
func SplitPath(path string) ([]string, error) {
	var names []string
	rest := path
	for rest != "" {
		if strings.HasPrefix(rest, "[") {
			quoted, err := strconv.QuotedPrefix(rest[1:])
			if err != nil || !strings.HasPrefix(rest[1+len(quoted):], "]") {
				return nil, fmt.Errorf("path %q: after %q a quoted name and ] are expected", path, path[:len(path)-len(rest)])
			}
			name, err := strconv.Unquote(quoted)
			if err != nil || name == "" {
				return nil, fmt.Errorf("path %q: %s is no name", path, quoted)
			}
			names = append(names, name)
			rest = rest[len(quoted)+2:]
		} else {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, fmt.Errorf("path %q holds an empty name", path)
			}
			names = append(names, rest[:end])
			rest = rest[end:]
		}
		if strings.HasPrefix(rest, ".") {
			rest = rest[1:]
			if rest == "" || rest[0] == '[' || rest[0] == '.' {
				return nil, fmt.Errorf("path %q: a name is expected after the dot", path)
			}
		} else if rest != "" && rest[0] != '[' {
			return nil, fmt.Errorf("path %q: a dot or a bracket is expected before %q", path, rest)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the path is empty")
	}
	return names, nil
}

// Lookup returns what stands at path in a decoded JSON value; false when
// something on the way is missing or is no object.
func Lookup(value any, path string) (any, bool) {
	names, err := SplitPath(path)
	if err != nil {
		return nil, false
	}
	for _, name := range names {
		object, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = object[name]; !ok {
			return nil, false
		}
	}
	return value, true
}
