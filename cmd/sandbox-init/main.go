// Command sandbox-init is the first process of every Pod of the built-in runtime. The controller starts it.
package main

import (
	"os"

	"navix.sh/agentbox/controller/embedded/runtime/podinit"
)

func main() { os.Exit(podinit.Main(os.Args)) }
