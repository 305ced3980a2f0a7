// Package spec holds envd's Connect services: the protos and the Go generated from them.
package spec

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.75.0 generate
