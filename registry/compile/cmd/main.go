// Command cmd writes the registry's index; go generate runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"navix.sh/agentbox/registry/compile"
)

func main() {
	spec := flag.String("spec", "openapi/native.yaml", "the OpenAPI document")
	out := flag.String("out", "registry/index_gen.go", "the file to write")
	flag.Parse()
	if err := run(*spec, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(spec, out string) error {
	data, err := os.ReadFile(spec)
	if err != nil {
		return err
	}
	ix, err := compile.Compile(filepath.ToSlash(spec), data)
	if err != nil {
		return err
	}
	source, err := compile.Print(ix)
	if err != nil {
		return err
	}
	return os.WriteFile(out, source, 0o644)
}
