package cli

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/output"
)

// imageFile names the image that a build of abx was shipped in; absent elsewhere.
const imageFile = "/opt/abx/IMAGE"

// versionCommand is `abx version`.
func (a *App) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "The version of this program and of the API that it knows", Args: words(0, 0),
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.printVersion(cmd) },
		Annotations: map[string]string{annotationExamples: "abx version --json"},
	}
	addOutput(cmd, groupCSV|groupFields, output.Formats)
	return cmd
}

// printVersion reads no configuration and sends nothing.
func (a *App) printVersion(cmd *cobra.Command) error {
	image := ""
	if data, err := os.ReadFile(imageFile); err == nil {
		image = strings.TrimSpace(string(data))
	}
	p, err := a.printing(cmd)
	if err != nil {
		return err
	}
	if p.machine() || p.fields != nil {
		document := map[string]any{
			"version": Version, "specVersion": a.Index.SpecVersion, "os": runtime.GOOS, "arch": runtime.GOARCH,
			"go": runtime.Version(), "agentContext": json.Number(itoa(agentContextVersion)),
		}
		if image != "" {
			document["image"] = image
		}
		return a.local(cmd.Context(), p, document, Version)
	}
	line := Version
	if image != "" {
		line += " (" + image + ")"
	}
	return a.line(line)
}
