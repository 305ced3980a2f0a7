package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"
)

// maxBody bounds a request body: the largest is a create with its metadata and environment.
const maxBody = 1 << 20

// decode reads a JSON object into out. Bodies come without a length, so an absent one is one that is empty; optional
// says that this is allowed. Fields that out does not have are refused: a feature must never be dropped in silence.
func (c *call) decode(out any, optional bool) error {
	body, err := io.ReadAll(io.LimitReader(c.Body, maxBody+1))
	if err != nil {
		return badRequest("the request body could not be read: %v", err)
	}
	if len(body) > maxBody {
		return &apiError{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request body is larger than %d bytes", maxBody)}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		if optional {
			return nil
		}
		return badRequest("Error when parsing request: the body is empty; send a JSON object")
	}
	var value json.RawMessage
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&value); err != nil {
		return badRequest("Error when parsing request: %s", explainJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("Error when parsing request: there is more than one JSON value in the body")
	}
	// Not encoding/json: it takes TIMEOUT for timeout, and the last of two.
	strict, err := kjson.UnmarshalStrict(value, out)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return badRequest("Error when parsing request: %s", explainJSON(err))
	}
	return nil
}

func explainJSON(err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Sprintf("field %q cannot be a %s; want %s", wrong.Field, wrong.Value, jsonType(wrong.Type.Kind().String()))
	case errors.As(err, &wrong):
		return fmt.Sprintf("the body cannot be a %s; want an object", wrong.Value)
	case strings.HasPrefix(err.Error(), "unknown field"):
		return err.Error() + "; docs/compatibility.md lists what is served"
	default:
		return err.Error()
	}
}

func jsonType(kind string) string {
	switch kind {
	case "string":
		return "a string"
	case "bool":
		return "true or false"
	case "int64", "int32":
		return "a whole number"
	case "map", "struct":
		return "an object"
	case "slice":
		return "a list"
	default:
		return kind
	}
}

// listParams may be repeated: each is a list, as one value with commas or as several.
var listParams = []string{"state", "sandbox_ids"}

// queryParams reads a query strictly: malformed encoding, names outside known and second values are refused, so that a
// filter is never dropped in silence.
func (c *call) queryParams(known ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query is not encoded properly: %v", err)
	}
	for name, values := range q {
		if len(values) > 1 && slices.Contains(known, name) && !slices.Contains(listParams, name) {
			return nil, badRequest("query parameter %q is given %d times: give it once", name, len(values))
		}
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return nil, badRequest("unknown query parameter %q: this route takes none", name)
			}
			return nil, badRequest("unknown query parameter %q: this route takes %s", name, strings.Join(known, ", "))
		}
	}
	return q, nil
}

// intParam reads a whole number within bounds; absent gives fallback.
func intParam(q url.Values, name string, fallback, low, high int64) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, badRequest("validation error: %s=%q: want a whole number from %d to %d", name, text, low, high)
	}
	return n, nil
}

// enumParam reads one of a closed set; absent gives the first.
func enumParam(q url.Values, name string, valid ...string) (string, error) {
	text := q.Get(name)
	if text == "" {
		return valid[0], nil
	}
	if !slices.Contains(valid, text) {
		return "", badRequest("validation error: %s=%q: want %s", name, text, strings.Join(valid, " or "))
	}
	return text, nil
}

// maxSeconds is the largest int32, the type of every duration in the API.
const maxSeconds = 1<<31 - 1

func seconds(name string, n int64) (time.Duration, error) {
	if n <= 0 {
		return 0, badRequest("%s must be greater than 0 seconds; got %d", name, n)
	}
	if n > maxSeconds {
		return 0, badRequest("%s cannot be greater than %d seconds; got %d", name, maxSeconds, n)
	}
	return time.Duration(n) * time.Second, nil
}
