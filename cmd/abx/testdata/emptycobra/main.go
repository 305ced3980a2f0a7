// Command emptycobra is the baseline of the start-up benchmark: cobra and nothing else.
package main

import (
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if (&cobra.Command{Use: "empty", Run: func(*cobra.Command, []string) {}}).Execute() != nil {
		os.Exit(1)
	}
}
