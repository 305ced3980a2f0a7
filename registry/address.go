package registry

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// Address is what the words after a verb (or of a read) name:
// <resource> [<id> [<child> [<child-id> [<view>]]]] or <resource> <id> <view>.
type Address struct {
	Resource *Resource // the deepest resource
	Parent   *Resource // its parent; nil at the root
	IDs      []string  // ids, parent first; never empty strings
	View     *View     // nil unless the last word is a view
}

// AddressError says why words are no address. It is never wrapped in a nil interface:
// functions return the pointer type.
type AddressError struct {
	Code       string // one of the Err constants
	Word       string // the word that is wrong; empty when one is missing
	Message    string
	Valid      []string // what would be right in that place
	Suggestion string   // the nearest of Valid, or a whole command; empty when nothing is near
	Hints      []string // what to do next
}

func (e *AddressError) Error() string { return e.Message }

// Codes of an AddressError.
const (
	ErrNoAddress       = "NO_ADDRESS"        // no words at all
	ErrUnknownResource = "UNKNOWN_RESOURCE"  // the first word is no root
	ErrNotRoot         = "NOT_A_ROOT"        // the first word is a child: its parent comes first
	ErrUnknownChild    = "UNKNOWN_CHILD"     // the third or fifth word is neither child nor view
	ErrMissingID       = "MISSING_ID"        // an id is needed before what follows
	ErrInvalidID       = "INVALID_ID"        // an id is empty or cannot stand in a path
	ErrTooManyWords    = "TOO_MANY_WORDS"    // words after the end of the address
	ErrNotReadable     = "NOT_READABLE"      // the address exists, but there is nothing to read at it
	ErrUnsupportedVerb = "UNSUPPORTED_VERB"  // the resource does not know the verb
	ErrWrongTarget     = "WRONG_VERB_TARGET" // the verb takes a collection and got an item, or the reverse
)

// ParseAddress reads words as an address. It is pure: it knows nothing of
// deployments, and an id is taken as it stands. It does not ask whether
// something can be read at the address; Operation does.
func (ix *Index) ParseAddress(words []string) (Address, *AddressError) {
	if len(words) == 0 {
		return Address{}, &AddressError{Code: ErrNoAddress, Message: "no resource was named", Valid: ix.rootNames()}
	}
	root := ix.Find(words[0])
	if root == nil {
		return Address{}, ix.unknownResource(words[0])
	}
	if root.Parent != "" {
		return Address{}, ix.notRoot(root, words[1:])
	}
	a := Address{Resource: root}
	rest := words[1:]
	for len(rest) > 0 {
		if err := checkID(a, rest[0]); err != nil {
			if ix.Child(a.Resource, rest[0]) != nil || a.Resource.View(rest[0]) != nil {
				err.Code = ErrMissingID
			}
			return Address{}, err
		}
		a.IDs = append(a.IDs, rest[0])
		rest = rest[1:]
		if len(rest) == 0 {
			break
		}
		word := rest[0]
		rest = rest[1:]
		if child := ix.Child(a.Resource, word); child != nil {
			a.Parent, a.Resource = a.Resource, child
			continue
		}
		view := a.Resource.View(word)
		if view == nil {
			return Address{}, ix.unknownChild(a, word)
		}
		a.View = view
		if len(rest) > 0 {
			return Address{}, &AddressError{Code: ErrTooManyWords, Word: rest[0],
				Message: fmt.Sprintf("%q comes after the view %q, which ends an address", rest[0], word),
				Hints:   []string{"abx " + a.String()}}
		}
	}
	return a, nil
}

// Collection reports whether the address names a whole list and not one object.
func (a Address) Collection() bool { return len(a.IDs) == a.depth()-1 }

// List is the collection that the address lies in; a collection is its own.
func (a Address) List() Address {
	if !a.Collection() {
		a.IDs, a.View = a.IDs[:len(a.IDs)-1], nil
	}
	return a
}

// ID returns the id of the addressed object; empty for a collection.
func (a Address) ID() string {
	if a.Collection() {
		return ""
	}
	return a.IDs[len(a.IDs)-1]
}

func (a Address) depth() int {
	if a.Parent != nil {
		return 2
	}
	return 1
}

// Words returns the address as it is typed.
func (a Address) Words() []string {
	if a.Resource == nil {
		return nil
	}
	var w []string
	if a.Parent != nil {
		w = append(w, a.Parent.Plural, a.IDs[0])
	}
	w = append(w, a.Resource.Plural)
	if id := a.ID(); id != "" {
		w = append(w, id)
	}
	if a.View != nil {
		w = append(w, a.View.Name)
	}
	return w
}

func (a Address) String() string { return strings.Join(a.Words(), " ") }

// URLPath fills the path template of op with the ids of the address, parent
// first, each percent-encoded.
func (a Address) URLPath(op *Operation) (string, error) {
	var b strings.Builder
	ids := a.IDs
	for _, segment := range strings.Split(strings.TrimPrefix(op.Path, "/"), "/") {
		b.WriteByte('/')
		if !strings.HasPrefix(segment, "{") {
			b.WriteString(segment)
			continue
		}
		if len(ids) == 0 {
			return "", fmt.Errorf("%s %s needs %s, which %q does not name", op.Method, op.Path, segment, a.String())
		}
		b.WriteString(url.PathEscape(ids[0]))
		ids = ids[1:]
	}
	if len(ids) > 0 {
		return "", fmt.Errorf("%s %s has no place for the id %q of %q", op.Method, op.Path, ids[0], a.String())
	}
	return b.String(), nil
}

// ConsolePath is the page of the address in the console, without leading slash;
// empty when there is none.
func (a Address) ConsolePath(cluster string) string {
	if a.Resource == nil || a.Resource.Console == "" {
		return ""
	}
	var parts []string
	if !a.Resource.Platform {
		if cluster == "" {
			return ""
		}
		parts = append(parts, "clusters", url.PathEscape(cluster))
	}
	for i, w := range a.Words() {
		if i == 0 && a.Parent == nil {
			w = a.Resource.Console
		}
		parts = append(parts, url.PathEscape(w))
	}
	return strings.Join(parts, "/")
}

// checkID refuses ids that are empty (an unset shell variable, most likely) or
// that a server would read as a different path.
func checkID(a Address, id string) *AddressError {
	r := a.Resource
	bad := func(why string) *AddressError {
		return &AddressError{Code: ErrInvalidID, Word: id,
			Message: fmt.Sprintf("the id of the %s %s", r.Kind, why),
			Hints:   []string{"abx " + a.String() + " --help"}}
	}
	switch {
	case strings.TrimSpace(id) == "":
		return bad("is empty (is a shell variable unset?)")
	case id == "." || id == "..":
		return bad(fmt.Sprintf("cannot be %q", id))
	case strings.IndexFunc(id, unicode.IsControl) >= 0:
		return bad("holds a control character")
	}
	return nil
}
