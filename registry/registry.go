// Package registry is the vocabulary of the product: which resources exist, how
// they are addressed, read and written, and what their bodies look like. It is
// compiled from openapi/native.yaml by registry/compile; nothing in it parses
// OpenAPI, YAML or JSON when a program starts, and it imports only the standard
// library.
package registry

//go:generate go run ./compile/cmd -spec ../openapi/native.yaml -out index_gen.go

// Index is the compiled vocabulary. Everything in it is read-only: it is shared
// by all callers of Default.
type Index struct {
	SpecVersion string // info.version of the document
	DocsBase    string // absolute URL, with trailing slash, that Resource.Docs is appended to (plus ".md")
	Resources   []Resource
	Operations  []Operation // sorted by ID
	Schemas     []Schema    // named components, sorted by Name
}

// Resource is one noun of the command line and the console.
type Resource struct {
	Plural   string // the word that is typed, unique in the index
	Kind     string // singular name for titles, unique in the index
	Parent   string // plural of the parent; empty at the root
	Summary  string // one sentence
	Describe string // a paragraph or more; may be empty
	Note     string // help note, e.g. how to read a derived column; may be empty

	Admin    bool   // only an admin key may read it
	Gate     string // feature gate (a property of FeatureGates) that must be on; empty when always there
	Platform bool   // belongs to the platform and not to one cluster: no /clusters/<id> in its address
	Console  string // console page below the address of the parent item, e.g. "envs"; empty when there is no page
	Docs     string // documentation slug, e.g. "concepts/envs"; empty when there is none

	List     *List // nil when there is nothing to list
	Item     *Item // nil when one object cannot be read
	Columns  []Column
	Filters  []Filter
	Detail   []Detail    // lines of the detail page, in order; empty means that the list columns are shown
	Texts    []TextBlock // long texts after the detail lines
	Tables   []string    // plurals of children whose tables are printed in the detail page
	Children []string    // plurals of the children, in registry order
	Verbs    []Verb
	Actions  []Action
	Views    []View
	Examples []Example
}

// List says how the rows of a collection are read.
type List struct {
	Operation string // operation id (GET)
	Rows      string // property that holds the rows; empty when the answer is the array itself
	Total     string // property that counts all rows; empty when there is none
	// TotalHeader is the response header that counts all rows when the envelope cannot.
	TotalHeader string
	Scalar      bool // rows are plain strings, shown under the only column
	Single      bool // the answer is one object, shown as one row
	// Expand names a property whose maps are expanded to one row per key (table,
	// CSV and filters only; JSON stays unexpanded). ExpandKey is the column of the key.
	Expand    string
	ExpandKey string
	// Paged is true when limit and offset are declared; MaxLimit is the largest limit.
	Paged    bool
	MaxLimit int
	Watch    bool // the watch parameter is declared
	// ID is the path of the value that addresses a row (as path parameter of items and writes).
	ID string
}

// Item says how one object is read.
type Item struct {
	Operation string // operation id (GET)
	Unwrap    string // property that holds the object; empty when the answer is the object
	Editable  string // property that holds what an update takes; empty when there is none
}

// Column is one column of a list. Its ID is the heading, the CSV heading and the
// filter key at once.
type Column struct {
	ID   string
	Path string // path in the row, see Lookup; empty when Derived
	// Else are paths whose values, joined by "/", stand in when there is nothing at Path
	// (deployments that do not send the field yet).
	Else     []string
	Wide     bool   // shown only when wide output is asked for
	Derived  string // name of the derivation that computes it, one of Derivations; empty normally
	Type     string // schema type of the value: string, integer, number, boolean, array, map, object
	Describe string
}

// Derivations are the columns that are computed from a whole row. They exist for
// quotas, whose rows are expanded to one for each instance type.
var Derivations = []string{"quota-instance-type", "quota-used", "quota-ceiling", "quota-free", "quota-note"}

// Filter restricts a list.
type Filter struct {
	Key      string
	Path     string
	Values   []string // closed set: exact match. Empty: case-insensitive substring of the rendered cell
	Param    string   // query parameter that does the same on the server; empty when there is none
	Describe string
}

// Detail is one line of the detail page.
type Detail struct {
	ID       string
	Path     string
	Type     string
	Describe string
}

// TextBlock is a long text printed whole after the detail lines.
type TextBlock struct {
	ID       string
	Path     string
	Describe string
}

// Verb is a write on a resource: create, update, delete or scale.
type Verb struct {
	Name      string
	Operation string
	Describe  string
	// Sets names the only field of the body that the verb changes, on what Item.Editable
	// holds (scale sets replicas); empty when the body comes from a file.
	Sets           string
	AgentForbidden string // why an agent key may never do it; empty when it may
}

// Action is a named act on one object.
type Action struct {
	Name           string
	Done           string // past tense for confirmations
	Operation      string
	Describe       string
	Body           string // the fixed body, JSON; empty when there is none
	AgentForbidden string // why an agent key may never do it; empty when it may
	// Flags set more fields of the body, each called like its flag.
	Flags []BodyFlag
}

// BodyFlag is a flag of an action that sets a text of its body.
type BodyFlag struct {
	Name     string
	Describe string
	Values   []string // closed set; empty when any text goes
}

// View is another way to look at one object, always the last word of an address.
type View struct {
	Name      string
	Operation string // empty when only the console has it
	Renderer  string // logs, docs or console
	Field     string // the property that a docs view prints, below Item.Unwrap
	Describe  string
	Until     string // the property that an object has once the view is no longer served for it
	// Options maps command-line flags to query parameters of the operation.
	Options []Option
}

// Option is a flag of a view that travels as a query parameter.
type Option struct {
	Flag  string
	Param string
}

// Operation is one route of the API.
type Operation struct {
	ID          string
	Method      string
	Path        string // template below /v1, e.g. /envs/{name}
	Summary     string
	Description string
	PathParams  []Param // in path order, whatever order the document declares
	Query       []Param
	Headers     []Param
	Request     *Body
	Responses   []Response // sorted by status
	Admin       bool
	// Approval is the id of the gated operation that an agent key needs approved; empty when
	// it is not gated. ApprovalOnce says that such an approval is spent by one use.
	Approval     string
	ApprovalOnce bool
	// AgentForbidden says why an agent key may never call it; empty when it may.
	AgentForbidden string
	Deprecated     bool
	Since          string // version of the API that introduced it; empty when it was always there
}

// Param is a parameter of an operation.
type Param struct {
	Name     string
	Required bool
	Describe string
	Schema   Schema
}

// Body is a request body, always JSON.
type Body struct {
	Schema   string // component name
	Required bool
	Example  string // JSON
}

// Response is one declared answer.
type Response struct {
	Status    int
	Describe  string
	MediaType string // of the answer's main form; empty when it has no body
	Schema    string // component name; empty when the body has no named schema
	// DryRun says that the same status answers a dry run, with DryRunSchema instead of Schema.
	DryRun  bool
	Example string // JSON; empty when the body is not JSON
	Headers []string
	// Stream says that the answer can also be text/event-stream.
	Stream bool
}

// Example is a command line that help shows; a test runs each.
type Example struct {
	Command  string
	Describe string
}

// Default returns the index that the program carries.
func Default() *Index { return &index }
