package registry

import (
	"fmt"
	"strings"
)

// Read returns the operation that reads the address: its view, its item or its
// list. A view that only the console has gives a nil operation and no error.
func (ix *Index) Read(a Address) (*Operation, *AddressError) {
	r := a.Resource
	switch {
	case a.View != nil:
		return ix.Operation(a.View.Operation), nil
	case a.Collection() && r.List != nil:
		return ix.Operation(r.List.Operation), nil
	case !a.Collection() && r.Item != nil:
		return ix.Operation(r.Item.Operation), nil
	}
	e := &AddressError{Code: ErrNotReadable, Word: a.ID()}
	if a.Collection() {
		e.Message = fmt.Sprintf("%s cannot be listed", r.Plural)
		e.Hints = []string{"abx " + ix.Form(r) + " --help"}
		return nil, e
	}
	e.Message = fmt.Sprintf("one %s cannot be read on its own: %s are a list only", r.Kind, r.Plural)
	list := a
	list.IDs = a.IDs[:len(a.IDs)-1]
	e.Hints = []string{"abx " + list.String()}
	for _, child := range r.Children {
		e.Valid = append(e.Valid, child)
		e.Hints = append(e.Hints, "abx "+a.String()+" "+child)
	}
	return nil, e
}

// Write returns the operation of a verb or an action on the address, after
// checking that the resource knows it and that it fits a collection or an item.
func (ix *Index) Write(verb string, a Address) (*Operation, *AddressError) {
	r := a.Resource
	if a.View != nil {
		item := a
		item.View = nil
		return nil, &AddressError{Code: ErrWrongTarget, Word: a.View.Name,
			Message: fmt.Sprintf("%s takes no view: %q only looks at the %s", verb, a.View.Name, r.Kind),
			Hints:   []string{"abx " + verb + " " + item.String()}}
	}
	op := ""
	if v := r.Verb(verb); v != nil {
		op = v.Operation
	} else if act := r.Action(verb); act != nil {
		op = act.Operation
	} else {
		return nil, ix.unsupported(verb, r)
	}
	if verb == "create" && !a.Collection() {
		list := a
		list.IDs = a.IDs[:len(a.IDs)-1]
		return nil, &AddressError{Code: ErrWrongTarget, Word: a.ID(),
			Message: fmt.Sprintf("create takes the list that the %s is added to; its name comes from the body", r.Kind),
			Hints:   []string{"abx create " + list.String() + " -f FILE"}}
	}
	if verb != "create" && a.Collection() {
		return nil, &AddressError{Code: ErrMissingID,
			Message: fmt.Sprintf("%s takes one %s, and %q names all of them", verb, r.Kind, a.String()),
			Hints:   []string{"abx " + verb + " " + a.String() + " <" + r.Kind + ">" + r.Needs(verb)}}
	}
	return ix.Operation(op), nil
}

// Needs are the flags that a verb cannot do without, as they are typed after the address.
func (r *Resource) Needs(verb string) string {
	switch v := r.Verb(verb); {
	case v == nil || verb == "delete":
		return ""
	case v.Sets != "":
		return " --" + v.Sets + " N"
	}
	return " -f FILE"
}

// target is the address that the verb takes, with placeholders.
func (ix *Index) target(verb string, r *Resource) string {
	if verb == "create" {
		return ix.Form(r)
	}
	return ix.ItemForm(r)
}

func (ix *Index) unsupported(verb string, r *Resource) *AddressError {
	e := &AddressError{Code: ErrUnsupportedVerb, Word: verb}
	for _, v := range r.Verbs {
		e.Valid = append(e.Valid, v.Name)
	}
	for _, act := range r.Actions {
		e.Valid = append(e.Valid, act.Name)
	}
	can := "are read-only"
	if len(e.Valid) > 0 {
		can = "can: " + strings.Join(e.Valid, ", ")
	}
	e.Message = fmt.Sprintf("%s knows no %s; they %s", r.Plural, verb, can)
	for i := range ix.Resources {
		other := &ix.Resources[i]
		if other.Verb(verb) != nil && (other.Kind == "admin-"+r.Kind || other.Parent == r.Plural) || other.Action(verb) != nil {
			e.Hints = append(e.Hints, "abx "+verb+" "+ix.target(verb, other)+other.Needs(verb))
		}
	}
	if r.Note != "" {
		e.Hints = append(e.Hints, r.Note)
	}
	return e
}

// ActionNames are the actions of all resources, which are verbs as well.
func (ix *Index) ActionNames() []string {
	var names []string
	for i := range ix.Resources {
		for _, act := range ix.Resources[i].Actions {
			names = append(names, act.Name)
		}
	}
	return names
}
