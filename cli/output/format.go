// Package output writes results in the registers of the command line: a table for
// people; JSON, NDJSON, CSV, YAML and names for programs.
package output

import (
	"slices"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/registry"
)

// Format is a register.
type Format string

// The registers.
const (
	Table  Format = "table"
	JSON   Format = "json"
	NDJSON Format = "ndjson"
	CSV    Format = "csv"
	YAML   Format = "yaml"
	Name   Format = "name"
)

// Formats are the values of --format.
var Formats = []string{"table", "json", "ndjson", "csv", "yaml", "name"}

// ParseFormat reads a value of --format.
func ParseFormat(s string) (Format, error) {
	if slices.Contains(Formats, s) {
		return Format(s), nil
	}
	return "", clierr.New(clierr.InvalidValue, "there is no format %q", s).Choices(Formats, registry.Suggest(s, Formats))
}
