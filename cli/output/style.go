package output

import (
	"io"
	"os"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"

	"navix.sh/agentbox/cli/clierr"
)

// Style colours text, or leaves it alone when it is not Enabled. It has a fixed
// palette of the 16 basic colours and never asks the terminal anything.
type Style struct{ Enabled bool }

// ColorModes are the values of --color.
var ColorModes = []string{"auto", "always", "never"}

// NewStyle decides whether w gets colour: mode auto means a terminal that is not dumb
// and no NO_COLOR (https://no-color.org).
func NewStyle(mode string, w io.Writer, getenv func(string) string) (Style, error) {
	switch mode {
	case "always":
		return Style{true}, nil
	case "never":
		return Style{}, nil
	case "auto", "":
		return Style{IsTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}, nil
	}
	return Style{}, clierr.New(clierr.InvalidValue, "there is no color mode %q", mode).Choices(ColorModes, "")
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Heading is for titles and column headings.
func (s Style) Heading(t string) string { return s.render(lipgloss.NewStyle().Bold(true), t) }

// Dim is for what can be skipped.
func (s Style) Dim(t string) string { return s.render(lipgloss.NewStyle().Faint(true), t) }

// Command is for command lines to copy.
func (s Style) Command(t string) string {
	return s.render(lipgloss.NewStyle().Foreground(lipgloss.Cyan), t)
}

// Added and Removed are for the lines of a diff.
func (s Style) Added(t string) string {
	return s.render(lipgloss.NewStyle().Foreground(lipgloss.Green), t)
}

// Removed is for what a write takes away.
func (s Style) Removed(t string) string {
	return s.render(lipgloss.NewStyle().Foreground(lipgloss.Red), t)
}

func (s Style) render(style lipgloss.Style, t string) string {
	if !s.Enabled || t == "" {
		return t
	}
	return style.Render(t)
}
