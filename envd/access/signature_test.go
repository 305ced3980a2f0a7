package access

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/state"
)

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

// TestSignVector holds a value that the E2B SDK made.
func TestSignVector(t *testing.T) {
	const want = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
	if got := Sign("hello.txt", Read, "user", token, ""); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFiles(t *testing.T) {
	secured := state.New(false)
	secured.Arm(state.Settings{AccessToken: token})
	now := time.Unix(1000, 0)
	sign := func(operation, expiration string) url.Values {
		query := url.Values{"path": {"a/../b"}, "username": {"user"}, "signature": {Sign("a/../b", operation, "user", token, expiration)}}
		if expiration != "" {
			query.Set("signature_expiration", expiration)
		}
		return query
	}
	with := func(query url.Values, key, value string) url.Values {
		query.Set(key, value)
		return query
	}
	for _, test := range []struct {
		name   string
		header string
		query  url.Values
		status int
		want   string
	}{
		{"header", token, nil, 0, ""},
		{"wrong header", "x", nil, 401, "access token present in header but does not match"},
		{"wrong header beside a good signature", "x", sign(Read, ""), 401, "access token present in header but does not match"},
		{"nothing", "", url.Values{}, 401, "missing signature query parameter"},
		{"signature", "", sign(Read, ""), 0, ""},
		{"signature for another operation", "", sign(Write, ""), 401, "invalid signature"},
		{"signature for another path", "", with(sign(Read, ""), "path", "b"), 401, "invalid signature"},
		{"signature for another user", "", with(sign(Read, ""), "username", "root"), 401, "invalid signature"},
		{"not yet expired", "", sign(Read, "1000"), 0, ""},
		{"expired", "", sign(Read, "999"), 401, "signature is already expired"},
		{"prolonged", "", with(sign(Read, "999"), "signature_expiration", "2000"), 401, "invalid signature"},
		{"expiration that is no time", "", sign(Read, "soon"), 400, "must be a time in unix seconds"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Files(secured, http.Header{TokenHeader: {test.header}}, test.query, Read, now)
			var refused *httperror.Error
			if (test.status == 0) != (err == nil) || err != nil && (!errors.As(err, &refused) || refused.Status != test.status || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %d %q", err, test.status, test.want)
			}
		})
	}
	if err := Files(state.New(false), http.Header{}, nil, Write, now); err != nil {
		t.Errorf("an open sandbox refuses: %v", err)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add("hello.txt", "user", "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E", "")
	f.Add("a", "", "v1_", "99999999999999999999")
	f.Add("a:read", "", "", "-1")
	secured := state.New(false)
	secured.Arm(state.Settings{AccessToken: token})
	f.Fuzz(func(t *testing.T, path, user, signature, expiration string) {
		query := url.Values{"path": {path}, "username": {user}, "signature": {signature}, "signature_expiration": {expiration}}
		err := Files(secured, http.Header{}, query, Read, time.Unix(1000, 0))
		if err == nil && signature != Sign(path, Read, user, token, expiration) {
			t.Errorf("%q was let in", signature)
		}
	})
}
