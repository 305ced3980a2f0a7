// Package podinit is the launcher inside every Pod of the built-in runtime (cmd/sandbox-init): process 1 of the Pod's
// namespaces. It starts containers, keeps their logs, answers the agent on a control socket that outlives the agent,
// and connects the agent to the Pod's ports. When it dies, the kernel ends everything in the Pod.
//
// The same binary runs in stages: as the Pod's first process ("pod"), as the first stage of a container
// ("container"), which builds the container's file tree and becomes the container's program, and as the two stages
// of a command in a running container ("join", "exec"). With "overlay" it tries a file system out.
package podinit

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// Main runs the stage that args name and returns the exit code.
func Main(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "sandbox-init is started by the agentbox controller; it is of no use by hand")
		return 2
	}
	switch args[1] {
	case "pod":
		return podMain(args[2:])
	case stageOfContainer:
		runtime.LockOSThread()
		return stageMain(stageContainer)
	case "overlay":
		if err := launch.TryOverlay(args[2], true); err != nil {
			fmt.Print(err)
		}
		return 0
	case stageOfRuntime:
		runtime.LockOSThread()
		return stageMain(func(c *launch.Container) error { return stageRuntime(c, args[2:]) })
	case "true": // what an OCI runtime is tried with
		return 0
	case "exec":
		runtime.LockOSThread()
		return stageMain(stageExec)
	case "join":
		runtime.LockOSThread()
		pid, err := strconv.Atoi(args[2])
		if err != nil {
			return 2
		}
		return joinMain(pid)
	}
	fmt.Fprintf(os.Stderr, "sandbox-init: unknown stage %q\n", args[1])
	return 2
}
