package registry

// The types of a Schema.
const (
	TypeObject  = "object"
	TypeArray   = "array"
	TypeMap     = "map" // an object with free keys; Elem is the type of the values
	TypeString  = "string"
	TypeInteger = "integer"
	TypeNumber  = "number"
	TypeBoolean = "boolean"
	TypeAny     = "any"
	TypeOneOf   = "oneOf"
)

// Schema is the shape of a value. allOf is merged and $ref of anything but an
// object is resolved; a reference to a named object stays one (Ref), so that
// recursive shapes are finite.
type Schema struct {
	Name     string // component name; empty inline
	Ref      string // name of the component that describes the value; everything but Nullable and Describe is empty then
	Type     string
	Format   string
	Describe string
	Pattern  string // RE2, unanchored like JSON Schema's
	Enum     []string
	Default  string // JSON; what the server assumes, never sent by a client
	Example  string // JSON
	Nullable bool
	Closed   bool    // unknown keys are refused
	Limits   *Limits // nil when there are none
	Elem     *Schema // of an array, of a map, or of the further keys of an object that has some
	Fields   []Field // of an object, in document order
	OneOf    []Schema
}

// Limits are the numeric bounds of a value; nil means unbounded.
type Limits struct {
	Min, Max             *float64
	MinLength, MaxLength *int // strings, in characters
	MinItems, MaxItems   *int // arrays; keys of maps and objects
}

// Field is a property of an object.
type Field struct {
	Name      string
	Required  bool
	Fixed     bool   // can be set at create only
	Lever     string // what to do instead of changing a fixed field
	ReadOnly  bool
	WriteOnly bool
	Schema    Schema
}
