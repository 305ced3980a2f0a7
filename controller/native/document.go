package native

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

	"navix.sh/agentbox/openapi"
)

// operation is one operation of the document with what requests need of it at hand.
type operation struct {
	id     string
	method string
	// path is as the document writes it, such as /envs/{name}.
	path string
	// open operations need no key.
	open  bool
	route *routers.Route
	// query holds the declared query parameters by name.
	query map[string]*openapi3.Schema
	// pathParams are the names in the path, in order.
	pathParams []string
	// body is the schema of the JSON body, nil when the operation takes none.
	body *openapi3.Schema
}

// document is openapi/native.yaml, read.
type document struct {
	spec       *openapi3.T
	operations map[string]*operation
}

func loadDocument() (*document, error) {
	spec, err := openapi3.NewLoader().LoadFromData(openapi.Native)
	if err != nil {
		return nil, fmt.Errorf("openapi/native.yaml: %w", err)
	}
	d := &document{spec: spec, operations: map[string]*operation{}}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			o := newOperation(spec, path, item, method, op)
			if d.operations[o.id] != nil {
				return nil, fmt.Errorf("openapi/native.yaml: two operations are called %s", o.id)
			}
			d.operations[o.id] = o
		}
	}
	return d, nil
}

func newOperation(spec *openapi3.T, path string, item *openapi3.PathItem, method string, op *openapi3.Operation) *operation {
	o := &operation{
		id: op.OperationID, method: method, path: path,
		open:  op.Security != nil && len(*op.Security) == 0,
		query: map[string]*openapi3.Schema{},
		route: &routers.Route{Spec: spec, Path: path, PathItem: item, Method: method, Operation: op},
	}
	for _, list := range []openapi3.Parameters{item.Parameters, op.Parameters} {
		for _, p := range list {
			if p.Value.In == openapi3.ParameterInQuery {
				o.query[p.Value.Name] = p.Value.Schema.Value
			}
		}
	}
	for _, part := range strings.Split(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			o.pathParams = append(o.pathParams, strings.TrimSuffix(name, "}"))
		}
	}
	if op.RequestBody != nil {
		if media := op.RequestBody.Value.Content.Get("application/json"); media != nil {
			o.body = media.Schema.Value
		}
	}
	return o
}

// enumOf returns the closed set of a query parameter, or nil.
func enumOf(s *openapi3.Schema) []string {
	if s == nil {
		return nil
	}
	if s.Type.Is("boolean") {
		return []string{"true", "false"}
	}
	var out []string
	for _, v := range s.Enum {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

func sortedNames[K ~string, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func isWrite(method string) bool { return method != http.MethodGet && method != http.MethodHead }
