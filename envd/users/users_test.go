package users

import (
	"errors"
	"net/http"
	"os"
	"testing"
)

func TestLookupUnknown(t *testing.T) {
	_, err := Lookup("no-such-user")
	if !errors.Is(err, ErrUnknown) || err.Error() != "error looking up user 'no-such-user': user: unknown user no-such-user" {
		t.Errorf("got %v", err)
	}
}

func TestCurrent(t *testing.T) {
	if got := Current(); got.UID != os.Geteuid() || got.Name == "" || got.Home == "" {
		t.Errorf("got %+v", got)
	}
}

func TestFromHeader(t *testing.T) {
	for value, want := range map[string]string{
		"":                   "",
		"Basic dXNlcjo=":     "user",
		"basic dXNlcjpwdw==": "user",
		"Basic Og==":         "",
		"Basic !!!":          "",
		"Bearer dXNlcjo=":    "",
	} {
		if got := FromHeader(http.Header{"Authorization": {value}}); got != want {
			t.Errorf("%q names %q, want %q", value, got, want)
		}
	}
}
