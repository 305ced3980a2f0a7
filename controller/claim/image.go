package claim

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// sameImage reports whether two references name the same image, after the shorthand of Docker Hub and the default
// tag are spelled out. References that do not parse are compared as they stand.
func sameImage(a, b string) bool {
	return a == b || a != "" && b != "" && fullImage(a) == fullImage(b)
}

func fullImage(s string) string {
	ref, err := name.ParseReference(s)
	if err != nil {
		return s
	}
	return ref.Name()
}

// CheckImage refuses what is no image reference with an *Error; empty means the pool's own image.
func CheckImage(s string) error {
	if s == "" {
		return nil
	}
	if strings.TrimSpace(s) != s {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("image %q has space around it", s), Hint: "write registry/repository:tag or registry/repository@sha256:digest"}
	}
	if _, err := name.ParseReference(s); err != nil {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("image %q is not an image reference: %s", s, reason(err)), Hint: "write registry/repository:tag or registry/repository@sha256:digest", Err: err}
	}
	return nil
}

// reason is what is wrong with a reference, without the advice that the parser adds.
func reason(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}
