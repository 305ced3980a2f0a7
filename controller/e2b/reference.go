package e2b

import (
	"fmt"
	"strings"
)

// Reference is a parsed template string, `[cluster::]name[//image]`: what a sandbox comes from.
type Reference struct {
	// Cluster is the id of a cluster; empty means the one that is asked.
	Cluster string
	// Name is that of an environment or, where a cluster is named, also of a pool.
	Name string
	// Image replaces the image of the main container; empty keeps it.
	Image string
}

// String is the canonical spelling: ParseReference of it gives the same Reference.
func (r Reference) String() string {
	s := r.Name
	if r.Cluster != "" {
		s = r.Cluster + "::" + s
	}
	if r.Image != "" {
		s += "//" + r.Image
	}
	return s
}

const (
	referenceGrammar = "[cluster::]name[//image]"
	maxReference     = 1024
	maxName          = 63
)

// ParseReference reads a template string. Blanks around the parts do not count; `::name` names no cluster and `name//`
// no image. It is the only reader of this grammar.
func ParseReference(s string) (Reference, error) {
	if len(s) > maxReference {
		return Reference{}, fmt.Errorf("the template string has %d bytes; at most %d are allowed in %s", len(s), maxReference, referenceGrammar)
	}
	place, image, _ := strings.Cut(s, "//")
	cluster, name, qualified := strings.Cut(place, "::")
	if !qualified {
		cluster, name = "", place
	}
	ref := Reference{Cluster: strings.TrimSpace(cluster), Name: strings.TrimSpace(name), Image: strings.TrimSpace(image)}
	switch {
	case ref.Name == "":
		return Reference{}, fmt.Errorf("template string %q names no environment: write %s, for instance \"default\"", s, referenceGrammar)
	case !isName(ref.Name):
		return Reference{}, fmt.Errorf("template string %q: %q is not a name (lower-case letters, digits, '-' and '.', at most %d); write %s, without a tag or team",
			s, ref.Name, maxName, referenceGrammar)
	case ref.Cluster != "" && !isName(ref.Cluster):
		return Reference{}, fmt.Errorf("template string %q: %q is not a cluster id; write %s", s, ref.Cluster, referenceGrammar)
	case strings.ContainsFunc(ref.Image, isBlankOrControl) || strings.HasPrefix(ref.Image, "/"):
		return Reference{}, fmt.Errorf("template string %q: %q is not an image; write %s, for instance \"%s//docker.io/library/ubuntu:24.04\"",
			s, ref.Image, referenceGrammar, ref.Name)
	}
	return ref, nil
}

// isName accepts what Kubernetes accepts as the name of an environment, a pool or a cluster.
func isName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alphanumeric := (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')
		inner := i > 0 && i < len(s)-1 && (c == '-' || c == '.')
		if !alphanumeric && !inner {
			return false
		}
	}
	return true
}

func isBlankOrControl(r rune) bool { return r <= ' ' || r == 0x7f || r == '\u00a0' || r == '\ufffd' }
