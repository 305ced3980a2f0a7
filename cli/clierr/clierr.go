// Package clierr is the one error type of the command line: a stable code, what
// was wrong, what would be right and what to do next, and the exit code that
// follows from it.
package clierr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"navix.sh/agentbox/cli/text"
)

// Error is a failure as scripts and agents see it.
type Error struct {
	Code       string    `json:"code"`
	Message    string    `json:"message"`
	Hints      []string  `json:"hint,omitempty"`
	Status     int       `json:"status,omitempty"` // HTTP status; 0 when nothing was answered
	Exit       int       `json:"exitCode"`
	Valid      []string  `json:"valid,omitempty"`      // the values that would have been right
	Suggestion string    `json:"suggestion,omitempty"` // the nearest of them
	Approval   *Approval `json:"approval,omitempty"`
	RequestID  string    `json:"requestId,omitempty"`

	cause error
}

// Approval is the request that holds a write until a person decides it.
type Approval struct {
	ID        string `json:"approvalId"`
	Operation string `json:"operation,omitempty"`
	Summary   string `json:"summary,omitempty"`
	OnceOnly  bool   `json:"onceOnly,omitempty"`
	URL       string `json:"url,omitempty"`
	PollURL   string `json:"pollUrl,omitempty"`
	ExpiresAt string `json:"expiresAt,omitempty"`
}

// New returns an Error whose exit code follows from the code.
func New(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Exit: ExitCode(code)}
}

// Hint adds lines that say what to do next and returns e.
func (e *Error) Hint(lines ...string) *Error {
	for _, l := range lines {
		if l != "" {
			e.Hints = append(e.Hints, l)
		}
	}
	return e
}

// Because records the error that led to e, for errors.Is and errors.As.
func (e *Error) Because(err error) *Error {
	e.cause = err
	return e
}

// Choices records the valid values and the nearest one.
func (e *Error) Choices(valid []string, suggestion string) *Error {
	e.Valid, e.Suggestion = valid, suggestion
	return e
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.cause }

// From returns err as an *Error; an error of another type is a bug and says so.
func From(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return New(Internal, "%s", err.Error()).Because(err)
}

// Print writes e to w: as text, or as one JSON object when asJSON is set.
func Print(w io.Writer, e *Error, asJSON bool) {
	if asJSON {
		_, _ = w.Write(e.jsonLine())
		return
	}
	fmt.Fprintf(w, "error: %s\n", text.Line(e.Message))
	if e.Suggestion != "" {
		fmt.Fprintf(w, "hint: did you mean %s?\n", text.Line(e.Suggestion))
	}
	if len(e.Valid) > 0 {
		fmt.Fprintf(w, "hint: valid: %s\n", text.Line(join(e.Valid)))
	}
	for _, h := range e.Hints {
		fmt.Fprintf(w, "hint: %s\n", text.Line(h))
	}
	if e.Approval != nil {
		e.Approval.Print(w)
	}
	if e.RequestID != "" && e.Exit == ExitFailure {
		fmt.Fprintf(w, "request id: %s\n", text.Line(e.RequestID))
	}
}

// Print writes the request as text.
func (a *Approval) Print(w io.Writer) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "approval %s: %s\n", name, text.Line(value))
		}
	}
	line("id", a.ID)
	line("operation", a.Operation)
	line("summary", a.Summary)
	line("link", a.URL)
	line("expires", a.ExpiresAt)
	if a.OnceOnly {
		line("scope", "one use only")
	}
}

// Command is the command line with which a person lets the write through.
func (a *Approval) Command() string {
	if a.ID == "" {
		return ""
	}
	return "abx approve approvals " + a.ID
}

func (e *Error) jsonLine() []byte {
	return jsonLine(struct {
		Error *Error `json:"error"`
	}{e})
}

// PrintNotes writes what a command that was done had to say besides its result, as one JSON object.
func PrintNotes(w io.Writer, notes []string) {
	_, _ = w.Write(jsonLine(struct {
		Notes []string `json:"notes"`
	}{notes}))
}

func jsonLine(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // plain strings and ints into memory: it cannot fail
	return escapeControls(b.Bytes())
}

func join(values []string) string {
	var b bytes.Buffer
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(v)
	}
	return b.String()
}

// escapeControls writes what a terminal could act on as JSON escapes. The encoder leaves the C1 controls and the marks
// that turn text around as they are; an error is read on terminals, also as JSON.
func escapeControls(line []byte) []byte {
	var out bytes.Buffer
	for _, r := range string(line) {
		switch {
		case r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f:
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}
