package body

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/registry"
)

// maxProblems is how many mistakes one error lists.
const maxProblems = 10

// Validate checks a body against a component of the registry and returns one error
// that lists what is wrong, or nil. It refuses only what the document refuses.
func Validate(ix *registry.Index, component string, value any) error {
	schema := ix.Schema(component)
	if schema == nil {
		return nil
	}
	c := &checker{ix: ix}
	c.check("", schema, value)
	if len(c.problems) == 0 {
		return nil
	}
	message := c.problems[0]
	if len(c.problems) > 1 {
		message = fmt.Sprintf("%d mistakes: %s", len(c.problems), strings.Join(c.problems[:min(len(c.problems), maxProblems)], "; "))
	}
	return clierr.New(clierr.InvalidBody, "the body is wrong: %s", message).Choices(c.valid, c.suggestion)
}

type checker struct {
	ix         *registry.Index
	problems   []string
	valid      []string // of the first mistake that has a valid set
	suggestion string
}

func (c *checker) report(path, format string, args ...any) {
	if path == "" {
		path = "the object"
	}
	c.problems = append(c.problems, path+" "+fmt.Sprintf(format, args...))
}

func (c *checker) check(path string, s *registry.Schema, v any) {
	if s = c.ix.Deref(s); s == nil || len(c.problems) > 100 {
		return
	}
	if v == nil {
		if !s.Nullable && s.Type != registry.TypeAny {
			c.report(path, "is null; leave it out, or give it a value")
		}
		return
	}
	switch s.Type {
	case registry.TypeObject:
		c.object(path, s, v)
	case registry.TypeMap:
		c.mapping(path, s, v)
	case registry.TypeArray:
		c.array(path, s, v)
	case registry.TypeString:
		c.text(path, s, v)
	case registry.TypeInteger, registry.TypeNumber:
		c.number(path, s, v)
	case registry.TypeBoolean:
		if _, ok := v.(bool); !ok {
			c.report(path, "is %s and must be true or false", kindOf(v))
		}
	case registry.TypeOneOf:
		c.oneOf(path, s, v)
	}
}

func (c *checker) object(path string, s *registry.Schema, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		c.report(path, "is %s and must be an object", kindOf(v))
		return
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		value, given := object[f.Name]
		if !given {
			if f.Required {
				c.report(join(path, f.Name), "is required")
			}
			continue
		}
		c.check(join(path, f.Name), &f.Schema, value)
	}
	if s.Closed {
		c.unknownKeys(path, s, object)
	}
}

func (c *checker) unknownKeys(path string, s *registry.Schema, object map[string]any) {
	var names []string
	for _, f := range s.Fields {
		names = append(names, f.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if slices.Contains(names, key) {
			continue
		}
		near := registry.Suggest(key, names)
		c.report(join(path, key), "does not exist")
		if c.valid == nil {
			c.valid, c.suggestion = names, near
		}
	}
}

func (c *checker) mapping(path string, s *registry.Schema, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		c.report(path, "is %s and must be an object", kindOf(v))
		return
	}
	c.items(path, s, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if s.Elem != nil {
			c.check(join(path, key), s.Elem, object[key])
		}
	}
}

func (c *checker) array(path string, s *registry.Schema, v any) {
	list, ok := v.([]any)
	if !ok {
		c.report(path, "is %s and must be a list", kindOf(v))
		return
	}
	c.items(path, s, len(list))
	for i, x := range list {
		if s.Elem != nil {
			c.check(fmt.Sprintf("%s[%d]", path, i), s.Elem, x)
		}
	}
}

func (c *checker) items(path string, s *registry.Schema, n int) {
	if s.Limits == nil {
		return
	}
	if low := s.Limits.MinItems; low != nil && n < *low {
		c.report(path, "has %d entries and needs at least %d", n, *low)
	}
	if high := s.Limits.MaxItems; high != nil && n > *high {
		c.report(path, "has %d entries and takes at most %d", n, *high)
	}
}

func (c *checker) text(path string, s *registry.Schema, v any) {
	value, ok := v.(string)
	if !ok {
		c.report(path, "is %s and must be a string (in YAML, quote it)", kindOf(v))
		return
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
		c.report(path, "is %q, which is none of %s", value, strings.Join(s.Enum, ", "))
		if c.valid == nil {
			c.valid, c.suggestion = s.Enum, registry.Suggest(value, s.Enum)
		}
		return
	}
	if s.Limits != nil {
		n := utf8.RuneCountInString(value)
		if low := s.Limits.MinLength; low != nil && n < *low {
			c.report(path, "has %d characters and needs at least %d", n, *low)
		}
		if high := s.Limits.MaxLength; high != nil && n > *high {
			c.report(path, "has %d characters and takes at most %d", n, *high)
		}
	}
	if s.Pattern != "" {
		if re, err := regexp.Compile(s.Pattern); err == nil && !re.MatchString(value) {
			c.report(path, "is %q and %s", value, wanted(s))
		}
	}
	if s.Format == "date-time" {
		if _, err := time.Parse(time.RFC3339, value); err != nil {
			c.report(path, "is %q and must be a time such as 2026-01-31T12:00:00Z", value)
		}
	}
}

// wanted says what a text must look like: an example tells more than a pattern.
func wanted(s *registry.Schema) string {
	if s.Example != "" {
		return "must look like " + s.Example
	}
	return "must match " + s.Pattern
}

func (c *checker) number(path string, s *registry.Schema, v any) {
	n, ok := v.(json.Number)
	if !ok {
		c.report(path, "is %s and must be a number", kindOf(v))
		return
	}
	value, _, err := big.ParseFloat(shorten(n.String()), 10, 128, big.ToNearestEven)
	if err != nil || value.IsInf() {
		c.report(path, "is %s, which is out of range", n)
		return
	}
	if s.Type == registry.TypeInteger && !value.IsInt() {
		c.report(path, "is %s and must be a whole number", n)
		return
	}
	if s.Limits == nil {
		return
	}
	if low := s.Limits.Min; low != nil && value.Cmp(big.NewFloat(*low)) < 0 {
		c.report(path, "is %s and must be at least %v", n, *low)
	}
	if high := s.Limits.Max; high != nil && value.Cmp(big.NewFloat(*high)) > 0 {
		c.report(path, "is %s and must be at most %v", n, *high)
	}
}

// shorten keeps absurd numbers from costing time; they are out of range anyway.
func shorten(s string) string {
	if len(s) > 64 {
		return "x"
	}
	return s
}

func (c *checker) oneOf(path string, s *registry.Schema, v any) {
	var first []string
	for i := range s.OneOf {
		branch := &checker{ix: c.ix}
		branch.check(path, &s.OneOf[i], v)
		if len(branch.problems) == 0 {
			return
		}
		if first == nil {
			first = branch.problems
		}
	}
	if first != nil {
		c.report(path, "fits none of its %d forms; as the first one: %s", len(s.OneOf), strings.Join(first, "; "))
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
