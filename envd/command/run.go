// Package command is envd's command line: the daemon, install and version.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"navix.sh/agentbox/envd/filesystem"
	"navix.sh/agentbox/envd/metrics"
	"navix.sh/agentbox/envd/process"
	"navix.sh/agentbox/envd/reaper"
	"navix.sh/agentbox/envd/server"
	"navix.sh/agentbox/envd/state"
)

// killGrace is how long processes may take to end after SIGTERM.
const killGrace = 3 * time.Second

// Run does what args say and returns the exit code: 0 done, 1 failed, 2 wrong usage.
func Run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "version":
			fmt.Fprintln(stdout, server.Version)
			return 0
		case "install":
			if len(args) != 2 {
				fmt.Fprintln(stderr, "error: install takes one path: envd install PATH")
				return 2
			}
			return report(stderr, install(args[1]))
		}
	}
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return report(stderr, serve(ctx, o, stdout))
}

func report(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "error: %v\n", err)
	return 1
}

// serve runs the daemon until ctx ends, and then ends every process of the sandbox.
func serve(ctx context.Context, o options, stdout io.Writer) error {
	template := state.TemplateEnv(os.Environ(), o.inheritEnv)
	if err := settle(); err != nil {
		return err
	}
	listeners, err := listen(ctx, o)
	if err != nil {
		return err
	}
	children := reaper.Start(nil)
	defer children.Stop()
	processes := process.NewManager(children)
	shared := state.New(o.requireInit)
	directories := filesystem.NewService(shared)
	defer directories.Close()
	handler := server.Handler(server.Config{
		State:      shared,
		InitToken:  o.initToken,
		Processes:  process.NewService(processes, shared, template),
		Filesystem: directories,
		Metrics:    metrics.NewCollector(),
		CAFile:     o.caFile,
		SetClock:   o.setClock,
	})
	for _, listener := range listeners {
		fmt.Fprintf(stdout, "envd listening on %s\n", listener.Addr())
	}
	return server.Serve(ctx, server.New(handler), listeners, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
		defer cancel()
		processes.Close(ending)
	})
}

func listen(ctx context.Context, o options) ([]net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // a sandbox has one path, and the plain protocol is the cheaper one
	tcp, err := config.Listen(ctx, "tcp", net.JoinHostPort(o.listen, strconv.Itoa(int(o.port))))
	if err != nil {
		return nil, err
	}
	listeners := []net.Listener{tcp}
	if o.socket != "" {
		unix, err := net.Listen("unix", o.socket)
		if err != nil {
			tcp.Close()
			return nil, err
		}
		listeners = append(listeners, unix)
	}
	return listeners, nil
}
