// Package v1alpha1 holds the objects that people and controllers write: SandboxTemplate, SandboxEnv and SandboxPool of
// the API group agents.navix.sh, and the labels, annotations and finalizers that the platform keeps on Pods.
//
// +kubebuilder:object:generate=true
// +groupName=agents.navix.sh
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=. output:crd:artifacts:config=crds
