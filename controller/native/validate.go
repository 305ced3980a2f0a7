package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"navix.sh/agentbox/registry"
)

// maxBody bounds a request's body, 1 MiB.
const maxBody = 1 << 20

// readBody takes in the body of a request, and what it must be: JSON, and not too large.
func readBody(w http.ResponseWriter, r *http.Request, op *operation) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) && op.body != nil {
			return nil, refuse(http.StatusRequestEntityTooLarge, codeTooLarge, "send a smaller body", "the body is larger than 1 MiB")
		}
		return nil, badBody("send it again", "the body could not be read to its end")
	}
	if op.body == nil {
		if len(data) > 0 {
			return nil, badBody("leave the body out", "%s %s takes no body", op.method, op.path)
		}
		return nil, nil
	}
	if len(data) == 0 {
		return data, nil
	}
	sent := r.Header.Get("Content-Type")
	if sent == "" {
		r.Header.Set("Content-Type", "application/json")
		return data, nil
	}
	if media, _, err := mime.ParseMediaType(sent); err != nil || media != "application/json" {
		return nil, refuse(http.StatusUnsupportedMediaType, codeMediaType, "send Content-Type: application/json",
			"the body is %s; it must be application/json", sent)
	}
	return data, nil
}

var filterOptions = &openapi3filter.Options{
	MultiError:          true,
	SkipSettingDefaults: true,
	// The key was checked before, by access.Store.
	AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
}

// validate holds a request to the document. Every problem is named at once.
func (c *call) validate() error {
	if err := c.checkQuery(); err != nil {
		return err
	}
	if c.op.body != nil && len(c.body) > 0 {
		if err := checkKeys(c.op.body, c.body); err != nil {
			return err
		}
	}
	err := openapi3filter.ValidateRequest(c.ctx, &openapi3filter.RequestValidationInput{
		Request: c.request, PathParams: c.params, QueryParams: c.query, Route: c.op.route, Options: filterOptions,
	})
	if err == nil {
		return nil
	}
	body, parameters := problems(err)
	if len(parameters) > 0 {
		return &apiError{status: http.StatusBadRequest, code: codeInvalidParameter, message: strings.Join(parameters, "; "),
			hint: []string{"see the parameters of " + c.op.id + " in /openapi.yaml"}}
	}
	return &apiError{status: http.StatusBadRequest, code: codeInvalidBody, message: strings.Join(body, "; "),
		hint: []string{"see the body of " + c.op.id + " in /openapi.yaml, or ask `abx` for its --schema"}}
}

// checkQuery refuses parameters that the operation does not have, and those given twice: ignoring one would answer
// another question than was asked.
func (c *call) checkQuery() error {
	names := sortedNames(c.op.query)
	for _, name := range sortedNames(c.query) {
		if _, known := c.op.query[name]; !known {
			return badParameter(nearest("parameters", name, names), "%s does not take the query parameter %q", c.op.id, name)
		}
		if len(c.query[name]) > 1 {
			return badParameter("give it once", "the query parameter %q is there %d times", name, len(c.query[name]))
		}
	}
	return nil
}

// nearest is a hint about a name that is not known.
func nearest(what, name string, valid []string) string {
	if len(valid) == 0 {
		return "there are no " + what + " here; leave it out"
	}
	if s := registry.Suggest(name, valid); s != "" {
		return fmt.Sprintf("did you mean %q? Its %s: %s", s, what, strings.Join(valid, ", "))
	}
	return fmt.Sprintf("its %s: %s", what, strings.Join(valid, ", "))
}

// checkKeys refuses keys that the body's schema does not have, anywhere in it.
func checkKeys(schema *openapi3.Schema, data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return badBody("send one JSON object", "the body is not JSON: %s", err)
	}
	return unknownKeys(schema, v, "")
}

func unknownKeys(schema *openapi3.Schema, v any, at string) error {
	switch v := v.(type) {
	case map[string]any:
		properties, open, values := shapeOf(schema)
		names := sortedNames(properties)
		for _, key := range sortedNames(v) {
			sub, known := properties[key]
			switch {
			case known:
			case values != nil:
				sub = values
			case open:
				continue
			default:
				where := "the body"
				if at != "" {
					where = at
				}
				return badBody(nearest("keys", key, names), "%s has no key %q", where, key)
			}
			if err := unknownKeys(sub, v[key], strings.TrimPrefix(at+"."+key, ".")); err != nil {
				return err
			}
		}
	case []any:
		if schema.Items == nil {
			return nil
		}
		for i, item := range v {
			if err := unknownKeys(schema.Items.Value, item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// shapeOf returns the properties of a schema through its allOf; whether other keys are allowed; and the schema of a
// map's values. A schema that names no properties is open: it says nothing about keys.
func shapeOf(schema *openapi3.Schema) (properties map[string]*openapi3.Schema, open bool, values *openapi3.Schema) {
	properties = map[string]*openapi3.Schema{}
	var walk func(*openapi3.Schema)
	walk = func(s *openapi3.Schema) {
		for name, p := range s.Properties {
			properties[name] = p.Value
		}
		if s.AdditionalProperties.Schema != nil {
			values = s.AdditionalProperties.Schema.Value
		}
		if s.AdditionalProperties.Has != nil && *s.AdditionalProperties.Has {
			open = true
		}
		for _, sub := range s.AllOf {
			walk(sub.Value)
		}
	}
	walk(schema)
	return properties, open || (len(properties) == 0 && values == nil), values
}

// problems puts what the validator found into sentences, those about the body and those about parameters.
func problems(err error) (body, parameters []string) {
	var walk func(err error, where string, isBody bool)
	add := func(text string, isBody bool) {
		list := &parameters
		if isBody {
			list = &body
		}
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	walk = func(err error, where string, isBody bool) {
		var many openapi3.MultiError
		var request *openapi3filter.RequestError
		var response *openapi3filter.ResponseError
		var schema *openapi3.SchemaError
		switch {
		case isA(err, &many):
			for _, e := range many {
				walk(e, where, isBody)
			}
		case isA(err, &request):
			if request.Parameter != nil {
				where = fmt.Sprintf("%s parameter %q", request.Parameter.In, request.Parameter.Name)
			} else {
				where, isBody = "", true
			}
			if request.Err == nil {
				add(sentence(where, request.Reason), isBody)
				return
			}
			walk(request.Err, where, isBody)
		case isA(err, &response) && response.Err != nil:
			walk(response.Err, where, isBody)
		case isA(err, &schema):
			if schema.Origin != nil {
				walk(schema.Origin, where, isBody)
				return
			}
			add(sentence(where, schemaProblem(schema)), isBody)
		case errors.Is(err, openapi3filter.ErrInvalidRequired) && isBody:
			add("a JSON body is required", isBody)
		case hasParts(err):
			walk(errors.Unwrap(err), where, isBody)
		default:
			add(sentence(where, err.Error()), isBody)
		}
	}
	walk(err, "", false)
	return body, parameters
}

// hasParts reports whether an error only wraps others that say it better.
func hasParts(err error) bool {
	var many openapi3.MultiError
	for err = errors.Unwrap(err); err != nil; err = errors.Unwrap(err) {
		if isA(err, &many) {
			return true
		}
	}
	return false
}

// isA is errors.As for the outermost error only: the validator's errors nest, and each level says something.
func isA[T any](err error, target *T) bool {
	t, ok := err.(T) //nolint:errorlint // see above
	if ok {
		*target = t
	}
	return ok
}

func sentence(where, what string) string {
	if where == "" {
		return what
	}
	return where + ": " + what
}

func schemaProblem(e *openapi3.SchemaError) string {
	at := strings.Join(e.JSONPointer(), ".")
	what := e.Reason
	if set := enumOf(e.Schema); e.SchemaField == "enum" && len(set) > 0 {
		what = "must be one of " + strings.Join(set, ", ")
	}
	return sentence(at, what)
}
