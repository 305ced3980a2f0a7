// Package access decides whether a client may use the sandbox: by its access token, or by a signed URL for files.
package access

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/state"
)

// The operations that a URL can be signed for.
const (
	Read  = "read"
	Write = "write"
)

// TokenHeader carries the sandbox's access token.
const TokenHeader = "X-Access-Token"

// Sign returns the signature of a file URL. path and user are exactly as in the query; expiration is the text of unix
// seconds, or empty for none.
func Sign(path, operation, user, token, expiration string) string {
	signed := path + ":" + operation + ":" + user + ":" + token
	if expiration != "" {
		signed += ":" + expiration
	}
	sum := sha256.Sum256([]byte(signed))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Files checks a request for a file: the token in the header, which wins when it is there, or a signature.
func Files(s *state.State, header http.Header, query url.Values, operation string, now time.Time) error {
	if !s.Secured() {
		return nil
	}
	if given := header.Get(TokenHeader); given != "" {
		if !s.TokenMatches(given) {
			return denied("access token present in header but does not match")
		}
		return nil
	}
	signature := query.Get("signature")
	if signature == "" {
		return denied("missing signature query parameter")
	}
	expiration := query.Get("signature_expiration")
	want := Sign(query.Get("path"), operation, query.Get("username"), s.Settings().AccessToken, expiration)
	if !state.Equal(signature, want) {
		return denied("invalid signature")
	}
	if expiration == "" {
		return nil
	}
	seconds, err := strconv.ParseInt(expiration, 10, 64)
	if err != nil {
		return httperror.New(http.StatusBadRequest, "signature_expiration is %q: it must be a time in unix seconds", expiration)
	}
	if now.Unix() > seconds {
		return denied("signature is already expired")
	}
	return nil
}

func denied(message string) error {
	return httperror.New(http.StatusUnauthorized, "%s", message)
}
