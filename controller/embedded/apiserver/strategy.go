package apiserver

import (
	"context"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy is how the generic registry asks a resource about its particulars.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	*resource
}

var (
	_ rest.RESTCreateStrategy              = &strategy{}
	_ rest.RESTUpdateStrategy              = &strategy{}
	_ rest.RESTGracefulDeleteStrategy      = &strategy{}
	_ rest.GarbageCollectionDeleteStrategy = &strategy{}
	_ rest.ResetFieldsStrategy             = &strategy{}
	_ rest.RESTUpdateStrategy              = &statusStrategy{}
	_ rest.Patcher                         = &statusREST{}
	_ rest.ShortNamesProvider              = kindStore{}
	_ rest.CategoriesProvider              = kindStore{}
)

func (s *strategy) NamespaceScoped() bool { return s.namespaced }

func (s *strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s.prepareCreate != nil {
		s.prepareCreate(obj)
	}
}

func (s *strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if s.prepareUpdate != nil {
		s.prepareUpdate(obj, old)
	}
}

func (s *strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	m := obj.(metav1.ObjectMetaAccessor).GetObjectMeta()
	errs := apivalidation.ValidateObjectMetaAccessor(m, s.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if s.validateCreate != nil {
		errs = append(errs, s.validateCreate(obj)...)
	}
	return errs
}

// ValidateUpdate leaves the metadata to the library, which has checked it before it calls.
func (s *strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	if s.validateUpdate == nil {
		return nil
	}
	return s.validateUpdate(obj, old)
}

func (s *strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

func (s *strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s *strategy) Canonicalize(runtime.Object) {}

func (s *strategy) AllowCreateOnUpdate(context.Context) bool { return false }

func (s *strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

func (s *strategy) CheckGracefulDelete(_ context.Context, obj runtime.Object, o *metav1.DeleteOptions) bool {
	if s.gracePeriod == nil {
		return false
	}
	s.gracePeriod(obj, o)
	return true
}

func (s *strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.DeleteDependents
}

// GetResetFields names what a write through the main resource cannot set.
func (s *strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.prepareStatus == nil {
		return nil
	}
	return s.reset("status")
}

func (s *strategy) reset(name string) map[fieldpath.APIVersion]*fieldpath.Set {
	gv := metav1.GroupVersion{Group: s.group, Version: s.version}.String()
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(gv): fieldpath.NewSet(fieldpath.MakePathOrDie(name)),
	}
}

// statusStrategy is the strategy of a status subresource.
type statusStrategy struct{ *strategy }

func (s *statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.prepareStatus(obj, old)
}

// ValidateUpdate has nothing to add to what the library checks of the metadata.
func (s *statusStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

// GetResetFields names what a write of the status cannot set.
func (s *statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.reset("spec")
}

// statusREST serves a status subresource. Its store shares everything but the strategy with that of the object, which
// also is the one to destroy it.
type statusREST struct{ store *genericregistry.Store }

func (r *statusREST) New() runtime.Object { return r.store.New() }

func (r *statusREST) Destroy() {}

func (r *statusREST) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, o)
}

func (r *statusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, create, update, false, o)
}

func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func (r *statusREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}
