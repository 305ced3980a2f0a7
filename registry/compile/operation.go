package compile

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"navix.sh/agentbox/registry"
)

var methods = []string{"get", "put", "post", "delete", "patch"}

var placeholder = regexp.MustCompile(`\{([^}]+)\}`)

// operation is a compiled operation with the node that it comes from.
type operation struct {
	registry.Operation
	node *yaml.Node
}

// operations compiles every operation, sorted by id.
func (d *document) operations() []*operation {
	var out []*operation
	byID := map[string]*operation{}
	for _, path := range pairs(get(d.root, "paths")) {
		for _, p := range pairs(path.value) {
			if !contains(methods, p.key.Value) {
				continue
			}
			op := d.operation(path.key.Value, p, items(get(path.value, "parameters")))
			if other := byID[op.ID]; other != nil {
				d.failf(p.key, "operationId %s is taken already (line %d)", op.ID, other.node.Line)
			}
			byID[op.ID] = op
			out = append(out, op)
		}
	}
	slices.SortFunc(out, func(a, b *operation) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (d *document) operation(path string, p pair, shared []*yaml.Node) *operation {
	n := p.value
	op := &operation{node: p.key, Operation: registry.Operation{
		ID: text(get(n, "operationId")), Method: strings.ToUpper(p.key.Value), Path: path,
		Summary: text(get(n, "summary")), Description: text(get(n, "description")), Deprecated: truth(get(n, "deprecated")),
	}}
	if op.ID == "" || op.Summary == "" {
		d.failf(p.key, "%s %s needs an operationId and a summary", op.Method, path)
	}
	if x := d.xabx(n, "an operation", "approval", "once", "agentForbidden", "admin", "since"); x != nil {
		op.Approval, op.ApprovalOnce = text(get(x, "approval")), truth(get(x, "once"))
		op.AgentForbidden, op.Admin, op.Since = text(get(x, "agentForbidden")), truth(get(x, "admin")), text(get(x, "since"))
		if op.ApprovalOnce && op.Approval == "" {
			d.failf(x, "once without approval means nothing")
		}
		if op.Approval != "" && op.AgentForbidden != "" {
			d.failf(x, "an operation is either held for an approval or forbidden to agents, not both")
		}
	}
	if op.Admin != strings.HasPrefix(path, "/admin/") {
		d.failf(p.key, "%s: admin: true belongs to paths below /admin/ and to all of them", op.ID)
	}
	d.parameters(op, append(slices.Clone(shared), items(get(n, "parameters"))...))
	d.requestBody(op, get(n, "requestBody"))
	d.responses(op, get(n, "responses"))
	d.checkStatuses(op, n)
	return op
}

// parameters sorts path parameters by their place in the path, whatever order
// they are declared in. A parameter declared twice (on the path and on the
// operation) counts once, the operation's.
func (d *document) parameters(op *operation, nodes []*yaml.Node) {
	path := map[string]registry.Param{}
	for _, node := range nodes {
		n, _ := d.deref(node)
		if n == nil {
			continue
		}
		p := registry.Param{Name: text(get(n, "name")), Required: truth(get(n, "required")),
			Describe: text(get(n, "description")), Schema: d.schema(get(n, "schema"), []string{""})}
		if p.Describe == "" {
			d.failf(node, "%s: parameter %s has no description", op.ID, p.Name)
		}
		switch in := text(get(n, "in")); in {
		case "path":
			path[p.Name] = p
		case "query":
			op.Query = replaceParam(op.Query, p)
		case "header":
			op.Headers = replaceParam(op.Headers, p)
		default:
			d.failf(node, "%s: parameter %s is in %q; path, query and header are known", op.ID, p.Name, in)
		}
	}
	for _, match := range placeholder.FindAllStringSubmatch(op.Path, -1) {
		p, ok := path[match[1]]
		if !ok {
			d.failf(op.node, "%s: the path names {%s}, which is no parameter", op.ID, match[1])
			continue
		}
		op.PathParams = append(op.PathParams, p)
		delete(path, match[1])
	}
	for name := range path {
		d.failf(op.node, "%s: parameter %s is in no place of the path %s", op.ID, name, op.Path)
	}
}

func replaceParam(list []registry.Param, p registry.Param) []registry.Param {
	if i := slices.IndexFunc(list, func(o registry.Param) bool { return o.Name == p.Name }); i >= 0 {
		list[i] = p
		return list
	}
	return append(list, p)
}

func (d *document) requestBody(op *operation, node *yaml.Node) {
	if node == nil {
		return
	}
	n, _ := d.deref(node)
	media := get(get(n, "content"), "application/json")
	if media == nil {
		d.failf(node, "%s: a request body is application/json", op.ID)
		return
	}
	_, name := d.deref(get(media, "schema"))
	if name == "" {
		d.failf(node, "%s: the schema of a request body is a named component", op.ID)
	}
	op.Request = &registry.Body{Schema: name, Required: truth(get(n, "required")), Example: d.example(media)}
	if op.Request.Example == "" {
		d.failf(node, "%s: the request body has no example", op.ID)
	}
}

// example is the example of a media type: the only one, or the first.
func (d *document) example(media *yaml.Node) string {
	if e := get(media, "example"); e != nil {
		return d.jsonOf(e)
	}
	for _, p := range pairs(get(media, "examples")) {
		n, _ := d.deref(p.value)
		return d.jsonOf(get(n, "value"))
	}
	return ""
}

func (d *document) responses(op *operation, node *yaml.Node) {
	for _, p := range pairs(node) {
		status, err := strconv.Atoi(p.key.Value)
		if err != nil {
			d.failf(p.key, "%s: status %q: every status is named, without default and ranges", op.ID, p.key.Value)
			continue
		}
		n, _ := d.deref(p.value)
		if n == nil {
			continue
		}
		r := registry.Response{Status: status, Describe: text(get(n, "description"))}
		for _, h := range pairs(get(n, "headers")) {
			r.Headers = append(r.Headers, h.key.Value)
		}
		for _, c := range pairs(get(n, "content")) {
			if c.key.Value == "text/event-stream" {
				r.Stream = true
				continue
			}
			r.MediaType = c.key.Value
			r.Schema, r.DryRun = d.responseSchema(get(c.value, "schema"))
			r.Example = d.example(c.value)
			if r.Example == "" {
				d.failf(c.key, "%s: the answer %d has no example", op.ID, status)
			}
			if status >= 400 {
				r.Example = "" // the document has them; a program needs only the shape
			}
		}
		op.Responses = append(op.Responses, r)
	}
	slices.SortFunc(op.Responses, func(a, b registry.Response) int { return a.Status - b.Status })
}

// responseSchema names the component of an answer, and whether the same status
// also answers a dry run.
func (d *document) responseSchema(n *yaml.Node) (name string, dryRun bool) {
	if branches := items(get(n, "oneOf")); len(branches) > 0 {
		for _, branch := range branches {
			_, b := d.deref(branch)
			switch {
			case b == registry.DryRunSchema:
				dryRun = true
			case name == "":
				name = b
			}
		}
		return name, dryRun
	}
	_, name = d.deref(n)
	return name, false
}

// checkStatuses holds every operation to the statuses that it can answer.
func (d *document) checkStatuses(op *operation, n *yaml.Node) {
	need := map[int]string{429: "every operation can", 500: "every operation can", 503: "every operation can"}
	if security := get(n, "security"); security == nil || len(security.Content) > 0 {
		need[401] = "the key may be unknown"
		need[403] = "the key may not be allowed to"
	}
	if len(op.PathParams)+len(op.Query)+len(op.Headers) > 0 || op.Request != nil {
		need[400] = "a parameter or the body may be wrong"
	}
	if len(op.PathParams) > 0 {
		need[404] = "the path names an object"
	}
	if op.Request != nil {
		need[413], need[415] = "the body may be too large", "the body may not be JSON"
	}
	if op.Approval != "" {
		need[428] = "it is held for an approval"
	}
	if op.Header("If-Match") != nil {
		need[412] = "it takes If-Match"
	}
	if op.QueryParam("dryRun") != nil {
		need[200] = "a dry run answers 200"
	}
	for status, why := range need {
		if op.Response(status) == nil {
			d.failf(op.node, "%s does not declare status %d (%s)", op.ID, status, why)
		}
	}
	if op.Success() == nil {
		d.failf(op.node, "%s declares no answer of success", op.ID)
	}
	if r := op.Response(200); op.QueryParam("dryRun") != nil && r != nil && !r.DryRun && r.Schema != registry.DryRunSchema {
		d.failf(op.node, "%s takes dryRun, and its 200 is not a %s", op.ID, registry.DryRunSchema)
	}
	if (op.Method == "PUT" || op.Method == "DELETE") && op.QueryParam("dryRun") == nil {
		d.failf(op.node, "%s replaces or deletes and does not take dryRun", op.ID)
	}
}
