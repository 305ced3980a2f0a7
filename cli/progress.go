package cli

import (
	"io"
	"time"

	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/cli/text"
)

// The only control sequences that abx writes besides colour: they rewrite one line of
// standard error while somebody watches it.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearLine  = "\r\x1b[K"
)

// progress shows one changing line on a terminal, and nothing anywhere else.
type progress struct {
	w       io.Writer
	visible bool
	shown   bool
	begin   time.Time
}

func (a *App) progress() *progress {
	return &progress{w: a.Err, visible: !a.json && output.IsTerminal(a.Err) && a.Getenv("TERM") != "dumb", begin: time.Now()}
}

func (p *progress) show(line string) {
	if !p.visible {
		return
	}
	if !p.shown {
		_, _ = io.WriteString(p.w, hideCursor)
		p.shown = true
	}
	elapsed := time.Since(p.begin).Round(time.Second).String()
	_, _ = io.WriteString(p.w, clearLine+text.Line(line)+" ("+elapsed+")")
}

// stop clears the line and brings the cursor back. It may be called more than once.
func (p *progress) stop() {
	if p.shown {
		_, _ = io.WriteString(p.w, clearLine+showCursor)
		p.shown = false
	}
}
