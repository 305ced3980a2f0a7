package registry

import (
	"fmt"
	"strings"
)

func (ix *Index) rootNames() []string {
	var names []string
	for _, r := range ix.Roots() {
		names = append(names, r.Plural)
	}
	return names
}

func (ix *Index) unknownResource(word string) *AddressError {
	e := &AddressError{Code: ErrUnknownResource, Word: word, Valid: ix.rootNames(),
		Message: fmt.Sprintf("unknown resource %q", word)}
	if meant := Retired(word); meant != nil {
		e.Message = fmt.Sprintf("%q is not a command of abx", word)
		e.Hints = append(e.Hints, meant.Hint)
		return e
	}
	if r := ix.ByKind(word); r != nil {
		e.Suggestion = r.Plural
		if r.Parent != "" {
			e.Hints = append(e.Hints, "abx "+ix.Form(r))
		}
		return e
	}
	e.Suggestion = Suggest(word, e.Valid)
	return e
}

func (ix *Index) notRoot(r *Resource, ids []string) *AddressError {
	return &AddressError{Code: ErrNotRoot, Word: r.Plural, Valid: ix.rootNames(),
		Message: fmt.Sprintf("%s stand under one %s and are not a resource of their own", r.Plural, ix.Find(r.Parent).Kind),
		Hints:   []string{strings.TrimSpace("abx " + ix.Form(r) + " " + strings.Join(ids[:min(len(ids), 1)], " "))}}
}

func (ix *Index) unknownChild(a Address, word string) *AddressError {
	r := a.Resource
	e := &AddressError{Code: ErrUnknownChild, Word: word, Valid: append([]string(nil), r.Children...)}
	for _, v := range r.Views {
		if v.Operation != "" { // a view that only the console has leads nowhere from here
			e.Valid = append(e.Valid, v.Name)
		}
	}
	if len(e.Valid) == 0 {
		e.Code = ErrTooManyWords
		e.Message = fmt.Sprintf("%q is one word too many: there is nothing under one %s", word, r.Kind)
		e.Hints = []string{"abx " + a.String()}
		return e
	}
	e.Message = fmt.Sprintf("%q is neither a child nor a view of one %s", word, r.Kind)
	e.Suggestion = Suggest(word, e.Valid)
	e.Hints = []string{fmt.Sprintf("abx %s %s", a.String(), firstOf(e.Suggestion, e.Valid[0]))}
	return e
}

// Form is how the collection of r is typed, with placeholders: "envs <env> pools".
func (ix *Index) Form(r *Resource) string {
	if r.Parent == "" {
		return r.Plural
	}
	return ix.ItemForm(ix.Find(r.Parent)) + " " + r.Plural
}

// ItemForm is how one object of r is typed, with placeholders: "envs <env> pools <pool>".
func (ix *Index) ItemForm(r *Resource) string { return ix.Form(r) + " <" + r.Kind + ">" }

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
