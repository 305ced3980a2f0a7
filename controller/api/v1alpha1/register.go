package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "agents.navix.sh", Version: "v1alpha1"}

// Plurals are the resources of this group, as they stand in paths.
var Plurals = []string{"sandboxtemplates", "sandboxenvs", "sandboxpools"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&SandboxTemplate{}, &SandboxTemplateList{},
		&SandboxEnv{}, &SandboxEnvList{},
		&SandboxPool{}, &SandboxPoolList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the types of this package with a scheme.
var AddToScheme = schemeBuilder.AddToScheme

// Resource returns the group resource of a plural name in this group.
func Resource(plural string) schema.GroupResource {
	return schema.GroupResource{Group: GroupVersion.Group, Resource: plural}
}
