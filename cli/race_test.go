//go:build race

package cli_test

var buildFlags = []string{"-race"}
