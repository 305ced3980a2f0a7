// Package cli is the command line of AgentBox: a cobra tree built from the
// registry, and what its commands do.
package cli

//go:generate go run ./docgen -dir ../docs/reference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/cli/text"
	"navix.sh/agentbox/registry"
)

// Version is the version of this build; releases set it with -ldflags -X.
var Version = "dev"

// App is one run of the command line with everything it touches.
type App struct {
	Index    *registry.Index
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Pause waits between two looks at something that is changing; tests replace it.
	Pause func(context.Context, time.Duration) error

	json      bool     // errors are to be JSON
	notes     []string // said so far where errors are JSON
	helpError error    // of a --help that asked about something that does not exist
	pinned    string   // the cluster in use and the context that names it; empty when no context does
}

// NewApp returns an App on the process's own streams and environment.
func NewApp() *App {
	return &App{Index: registry.Default(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Pause: pause}
}

// Main runs the command line of the process and returns its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		// A second interrupt ends the process at once, whatever it waits for.
		<-ctx.Done()
		stop()
	}()
	a := NewApp()
	code := a.Run(ctx, os.Args[1:])
	a.updateNotice(ctx, os.Args[1:], code)
	return code
}

// Run executes one command line and returns its exit code. Errors are printed.
func (a *App) Run(ctx context.Context, args []string) (code int) {
	defer func() {
		// A panic would end with 2, which means a mistake of the caller.
		if cause := recover(); cause != nil {
			e := clierr.New(clierr.Internal, "a bug in abx %s: %v", Version, cause).Hint("report it with this stack: " + string(debug.Stack()))
			code = a.fail(ctx, e)
		}
	}()
	a.json = wantsJSON(args)
	root := a.Command()
	arranged, err := arrange(root, args)
	if err == nil {
		err = a.checkWords(root, arranged)
	}
	if err == nil {
		root.SetArgs(arranged)
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		err = a.helpError
	}
	if err == nil {
		if len(a.notes) > 0 {
			clierr.PrintNotes(a.Err, a.notes)
		}
		return clierr.ExitOK
	}
	return a.fail(ctx, err)
}

func (a *App) fail(ctx context.Context, err error) int {
	if errors.Is(err, syscall.EPIPE) {
		return clierr.ExitOK // the reader has seen enough, as with head
	}
	e := clierr.From(err)
	if ctx.Err() != nil && e.Exit == clierr.ExitFailure {
		e = clierr.New(clierr.Interrupted, "interrupted")
	}
	if a.pinned != "" && e.Code == clierr.NotFound {
		e.Hint(a.pinned + "; another one for this command: --cluster ID")
	}
	clierr.Print(a.Err, e.Hint(a.notes...), a.json)
	return e.Exit
}

// wantsJSON reads from the raw arguments whether errors are to be JSON, because the
// flags themselves may be what is wrong.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--json" || arg == "--json=true" || arg == "--format=json" || arg == "--format=ndjson":
			return true
		case arg == "--format" && i+1 < len(args):
			return args[i+1] == "json" || args[i+1] == "ndjson"
		}
	}
	return false
}

// keepOrder makes cobra list commands in the order of the registry. The switch is global to the process.
var keepOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

// Command builds the cobra tree.
func (a *App) Command() *cobra.Command {
	keepOrder()
	root := &cobra.Command{
		Use:           "abx",
		Short:         "Environments and warm pools that AI agents claim sandboxes from",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if show, _ := cmd.Flags().GetBool("version"); show {
				return a.printVersion(cmd)
			}
			if len(args) == 0 {
				return a.help(cmd, nil)
			}
			_, err := a.Index.ParseAddress(args)
			return a.unknownCommand(args[0], err)
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		a.helpError = a.help(cmd, cmd.Flags().Args()) // cobra takes no error here
	})
	root.SetFlagErrorFunc(a.flagError)
	addFlags(root, groupGlobal|groupVersion|groupJSON)
	a.completeFlags(root)
	for _, r := range a.Index.Roots() {
		root.AddCommand(a.readCommand(r))
	}
	for _, verb := range a.verbs() {
		root.AddCommand(a.verbCommand(verb))
	}
	root.AddCommand(a.otherCommands()...)
	root.SetHelpCommand(a.helpCommand())
	root.InitDefaultHelpCmd() // or it would be there only once the tree runs
	return root
}

// otherCommands are those that are neither a resource nor a verb.
func (a *App) otherCommands() []*cobra.Command {
	return []*cobra.Command{
		a.whoamiCommand(), a.contextCommand(), a.agentContextCommand(), a.skillsCommand(), a.completionCommand(),
		a.upgradeCommand(), a.versionCommand(),
	}
}

// verbs are the words that write: the fixed ones and the actions of the registry.
func (a *App) verbs() []string {
	words := slices.Clone(registry.Verbs)
	for _, name := range a.Index.ActionNames() {
		if !slices.Contains(words, name) {
			words = append(words, name)
		}
	}
	return words
}

func (a *App) unknownCommand(word string, address *registry.AddressError) error {
	if address == nil {
		return clierr.New(clierr.UnknownCommand, "%q stands behind --, where no command is read", word).Hint("abx " + word)
	}
	e := addressError(address)
	if address.Code == registry.ErrUnknownResource && len(e.Hints) == 0 {
		commands := append(a.verbs(), registry.Commands...)
		if e.Suggestion == "" {
			e.Suggestion = registry.Suggest(word, commands)
		}
		e.Hint("besides resources there are: "+strings.Join(commands, ", "), "abx --help")
	}
	return e
}

// addressError turns a refusal of the registry into the error of the command line.
func addressError(e *registry.AddressError) *clierr.Error {
	return clierr.New(e.Code, "%s", e.Message).Choices(e.Valid, e.Suggestion).Hint(e.Hints...)
}

// note tells something that is no result, on standard error. Where errors are JSON, standard error holds one object at
// most: notes wait for the end and stand in the hints of the error, or in an object of their own when there is none.
func (a *App) note(format string, args ...any) {
	line := text.Line(fmt.Sprintf(format, args...))
	if a.json {
		a.notes = append(a.notes, line)
		return
	}
	fmt.Fprintln(a.Err, "note: "+line)
}

// configPath is where the contexts are kept.
func (a *App) configPath() string { return config.Path(a.Getenv) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
