package v1alpha1

import "embed"

// CRDs holds the generated CustomResourceDefinition manifests, one YAML document a file, under crds/.
//
//go:embed crds/*.yaml
var CRDs embed.FS
