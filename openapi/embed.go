// Package openapi holds the documents that describe the product's surfaces. The
// controller serves them and validates requests against them; the command line
// does not import this package: it reads the registry that is compiled from it.
package openapi

import _ "embed"

// Native is the native API in OpenAPI 3.0.3 (YAML), with the x-abx extension of
// docs/x-abx.md.
//
//go:embed native.yaml
var Native []byte
