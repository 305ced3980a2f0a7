// How many threads it uses is told, and need not be looked up in the control groups at every start.
//go:debug containermaxprocs=0

// Command sandbox-init is the first process of every Pod of the built-in runtime. The controller starts it.
package main

import (
	"os"

	"navix.sh/agentbox/controller/embedded/runtime/podinit"
)

func main() { os.Exit(podinit.Main(os.Args)) }
