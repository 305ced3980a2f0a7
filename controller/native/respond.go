package native

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// response is what a handler answers.
type response struct {
	status int
	etag   string
	header http.Header
	// body is written as JSON; nil writes none.
	body any
	// stream writes server-sent events instead.
	stream func(*eventStream) error
}

func ok(body any) *response { return &response{status: http.StatusOK, body: body} }

func okTagged(body any, etag string) *response {
	return &response{status: http.StatusOK, body: body, etag: etag}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		// Nothing is on the wire yet. A body of ours that does not encode is a bug.
		buf.Reset()
		status = http.StatusInternalServerError
		buf.WriteString(`{"error":"the answer could not be encoded","errorCode":"INTERNAL"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the client is gone: nobody to tell
}

// etagOf is the version of an object's desired state: a digest of what a write can change, and of the object's UID, so
// that one that was made anew under the same name is another one. What the platform reports about it does not count.
func etagOf(parts ...any) string {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for _, p := range parts {
		// The parts are our own plain types, which always encode.
		_ = enc.Encode(p)
	}
	return `"` + hex.EncodeToString(sum.Sum(nil))[:16] + `"`
}

// checkMatch holds a write to the version that its If-Match names.
func (c *call) checkMatch(kind, name, current string) error {
	header := strings.TrimSpace(c.request.Header.Get("If-Match"))
	if header == "" || header == "*" {
		return nil
	}
	for _, tag := range strings.Split(header, ",") {
		if strings.Trim(strings.TrimSpace(tag), `"`) == strings.Trim(current, `"`) {
			return nil
		}
	}
	return refuse(http.StatusPreconditionFailed, codeConflict, "read it again and repeat the change on what is there now",
		"%s %q changed since it was read", kind, name)
}
