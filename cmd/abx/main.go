// Command abx is the command line of AgentBox.
package main

import (
	"os"

	"navix.sh/agentbox/cli"
)

func main() { os.Exit(cli.Main()) }
