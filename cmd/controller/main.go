// Command controller serves AgentBox on one port: native API, E2B API and gateway.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"navix.sh/agentbox/controller"
)

func main() { os.Exit(run()) }

func run() int {
	settings, err := controller.ParseSettings(os.Args[1:], os.LookupEnv, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	case settings.PrintVersion:
		fmt.Println(controller.Version)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := controller.Run(ctx, settings, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}
