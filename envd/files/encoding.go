package files

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"

	"navix.sh/agentbox/envd/httperror"
)

const (
	gzipEncoding     = "gzip"
	identityEncoding = "identity"
)

// negotiate chooses the encoding of a download: gzip when the client asks for it by name or prefers it, else identity.
// Ranges and conditions are about the file itself and force identity.
func negotiate(header http.Header) (string, error) {
	weights := acceptEncoding(header)
	identity := weight(weights, identityEncoding)
	for _, name := range []string{"Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"} {
		if header.Get(name) == "" {
			continue
		}
		if identity == 0 {
			return "", httperror.New(http.StatusNotAcceptable, "no acceptable encoding found, supported: [identity]; a request with %s is answered unencoded", name)
		}
		return identityEncoding, nil
	}
	compressed := weight(weights, gzipEncoding)
	_, named := weights[identityEncoding]
	switch {
	case compressed > 0 && (!named || compressed >= identity):
		return gzipEncoding, nil
	case identity > 0:
		return identityEncoding, nil
	}
	return "", httperror.New(http.StatusNotAcceptable, "no acceptable encoding found, supported: [identity, gzip]")
}

// acceptEncoding parses the header of RFC 9110, 12.5.3, into weights by lower-case name. Malformed weights count as 0.
func acceptEncoding(header http.Header) map[string]float64 {
	weights := map[string]float64{}
	for item := range strings.SplitSeq(strings.Join(header.Values("Accept-Encoding"), ","), ",") {
		name, parameters, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		q := 1.0
		if key, value, found := strings.Cut(strings.TrimSpace(parameters), "="); found && strings.EqualFold(strings.TrimSpace(key), "q") {
			parsed, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil || !(parsed >= 0 && parsed <= 1) {
				parsed = 0
			}
			q = parsed
		}
		weights[name] = q
	}
	return weights
}

// weight is how welcome an encoding is. What the header does not mention is refused, but for identity.
func weight(weights map[string]float64, name string) float64 {
	if q, found := weights[name]; found {
		return q
	}
	if q, found := weights["*"]; found && (name != identityEncoding || q == 0) {
		return q
	}
	if name == identityEncoding {
		return 1
	}
	return 0
}

// decoded returns the body of an upload without its Content-Encoding.
func decoded(r *http.Request) (io.Reader, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); encoding {
	case "", identityEncoding:
		return r.Body, nil
	case gzipEncoding:
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, httperror.New(http.StatusBadRequest, "the body is not gzip although Content-Encoding says so: %v", err)
		}
		return body, nil
	default:
		return nil, httperror.New(http.StatusBadRequest, "unsupported Content-Encoding %q, supported: [identity, gzip]", encoding)
	}
}
