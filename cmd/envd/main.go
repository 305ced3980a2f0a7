// envd runs inside every sandbox and serves its processes and files with the protocol of the E2B SDKs.
package main

import (
	"os"

	"navix.sh/agentbox/envd/command"
)

func main() {
	os.Exit(command.Run(os.Args[1:], os.Stdout, os.Stderr))
}
