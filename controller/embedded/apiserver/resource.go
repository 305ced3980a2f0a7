package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
)

// resource describes one built-in type: what it is called, and what is particular about it. Functions may be nil.
type resource struct {
	group, version   string
	plural, singular string
	shortNames       []string
	categories       []string
	namespaced       bool
	newObject        func() runtime.Object
	newList          func() runtime.Object

	// prepareCreate and prepareUpdate set what a client may not.
	prepareCreate func(obj runtime.Object)
	prepareUpdate func(obj, old runtime.Object)
	// prepareStatus does so for the status subresource; there is none when it is nil.
	prepareStatus  func(obj, old runtime.Object)
	validateCreate func(obj runtime.Object) field.ErrorList
	validateUpdate func(obj, old runtime.Object) field.ErrorList
	// fields are those that a field selector may name besides metadata.name and metadata.namespace.
	fields func(obj runtime.Object) fields.Set
	// gracePeriod decides how long a deletion waits; deletions are immediate when it is nil.
	gracePeriod func(obj runtime.Object, o *metav1.DeleteOptions)
	// ttlSeconds is how long an object lives; 0 is for ever.
	ttlSeconds uint64
	columns    *columns
}

func (r *resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.group, Resource: r.plural}
}

func (r *resource) attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, err
	}
	set := fields.Set{"metadata.name": m.GetName()}
	if r.namespaced {
		set["metadata.namespace"] = m.GetNamespace()
	}
	if r.fields != nil {
		for k, v := range r.fields(obj) {
			set[k] = v
		}
	}
	return m.GetLabels(), set, nil
}

// kindStore serves a resource, with the names that kubectl knows it by.
type kindStore struct {
	*genericregistry.Store
	shortNames, categories []string
}

func (s kindStore) ShortNames() []string { return s.shortNames }

func (s kindStore) Categories() []string { return s.categories }

// storage builds the REST storage of a resource, keyed by path: its own, and that of its status.
func (r *resource) storage(opts generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	s := &strategy{ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator, resource: r}
	st := &genericregistry.Store{
		NewFunc:                   r.newObject,
		NewListFunc:               r.newList,
		DefaultQualifiedResource:  r.groupResource(),
		SingularQualifiedResource: schema.GroupResource{Group: r.group, Resource: r.singular},
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		ResetFieldsStrategy:       s,
		TableConvertor:            r.table(),
		PredicateFunc: func(l labels.Selector, f fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: l, Field: f, GetAttrs: r.attrs}
		},
	}
	if r.ttlSeconds > 0 {
		st.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return r.ttlSeconds, nil }
	}
	if err := st.CompleteWithOptions(&generic.StoreOptions{RESTOptions: opts, AttrFunc: r.attrs}); err != nil {
		return nil, fmt.Errorf("build the storage of %s: %w", r.groupResource(), err)
	}
	out := map[string]rest.Storage{r.plural: kindStore{st, r.shortNames, r.categories}}
	if r.prepareStatus != nil {
		sub := *st
		sub.UpdateStrategy = &statusStrategy{s}
		sub.ResetFieldsStrategy = &statusStrategy{s}
		out[r.plural+"/status"] = &statusREST{&sub}
	}
	return out, nil
}
