package native

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strconv"

	"navix.sh/agentbox/controller/access"
)

// call is one request to one operation, authenticated and valid against the document.
type call struct {
	*Handler
	ctx     context.Context
	request *http.Request
	op      *operation
	id      string // of the request, as the client may have chosen it
	write   string // of what the call writes, which no client can choose
	caller  access.Caller
	params  map[string]string
	query   url.Values
	body    []byte
	// apiBase is the path that this form of the API is mounted at, such as /v1.
	apiBase string
	// held is the approval that this call still needs before it may write.
	held *access.ApprovalRequiredError
	// released is true once an approval was spent on this call: a write that starts over is still the same call.
	released bool
}

type handlerFunc func(*call) (*response, error)

func (c *call) param(name string) string { return c.params[name] }

// flag reads a boolean query parameter, which the document has validated.
func (c *call) flag(name string) bool { return c.query.Get(name) == "true" }

// number reads an integer query parameter; the bool is false when it was not sent.
func (c *call) number(name string) (int, bool) {
	v := c.query.Get(name)
	if v == "" {
		return 0, false
	}
	n, err := strconv.Atoi(v)
	return n, err == nil
}

func (c *call) dryRun() bool { return c.flag("dryRun") }

// authorize asks the one authorisation function. For a write of an agent key that needs an approval it remembers so;
// release then lets the write through or holds it.
func (c *call) authorize(v access.Verb, o access.Object) error {
	err := access.Authorize(c.caller, v, o)
	var wait *access.ApprovalRequiredError
	if errors.As(err, &wait) {
		c.held = wait
		return nil
	}
	return err
}

// admin is authorize for the routes under /admin.
func (c *call) admin(v access.Verb) error {
	return c.authorize(v, access.Object{Kind: access.KindAdmin})
}

// own is an object of the caller's that has no other identity: a collection of theirs.
func (c *call) own(k access.Kind) access.Object {
	return access.Object{Kind: k, Namespace: c.caller.Namespace, Team: c.caller.Team, User: c.caller.User}
}

// decode reads the body into T. The document has validated it; what is left is what Go's types cannot hold.
func decode[T any](c *call) (T, error) {
	var v T
	if err := json.Unmarshal(c.body, &v); err != nil {
		return v, badBody("compare it with the schema of the operation", "the body cannot be read: %s", unreadable(err))
	}
	return v, nil
}

// unreadable says what of a body does not fit, in the words of JSON and not of Go.
func unreadable(err error) string {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return err.Error()
	}
	where := kind.Field
	if where == "" {
		where = "the object"
	}
	want := "an object"
	switch k := kind.Type.Kind(); k {
	case reflect.Int32:
		want = "a whole number in decimal digits, of 32 bits"
	case reflect.Int, reflect.Int64:
		want = "a whole number in decimal digits, of 64 bits"
	case reflect.Float64:
		want = "a number"
	case reflect.Bool, reflect.String:
		want = "a " + k.String()
	case reflect.Slice:
		want = "a list"
	}
	return where + " is " + kind.Value + " and must be " + want
}
