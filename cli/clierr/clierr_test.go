package clierr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	for code, want := range map[string]int{
		ServerError: 1, BadResponse: 1, "SOMETHING_NEW": 1,
		UnknownFlag: 2, UnknownResource: 2, InvalidBody: 2, "MISSING_ID": 2,
		Unauthenticated: 3, Forbidden: 3, ForbiddenForAgent: 3,
		NotFound: 4, Timeout: 5, Capacity: 6, RateLimited: 6, Conflict: 7,
		ApprovalRequired: 8, Unreachable: 9, NotConfigured: 9, Interrupted: 130,
	} {
		if got := ExitCode(code); got != want {
			t.Errorf("ExitCode(%s) = %d, want %d", code, got, want)
		}
	}
}

func TestStatusCodes(t *testing.T) {
	for status, want := range map[int]int{
		400: 2, 401: 3, 403: 3, 404: 4, 408: 5, 409: 7, 412: 7, 422: 2, 428: 8, 429: 6, 500: 1, 501: 1, 502: 1, 503: 6, 504: 5,
	} {
		if got := ExitCode(CodeOfStatus(status)); got != want {
			t.Errorf("status %d exits %d, want %d", status, got, want)
		}
	}
}

func TestPrintJSONIsOneObjectWithoutEmptyKeys(t *testing.T) {
	var b bytes.Buffer
	Print(&b, New(NotFound, "no env %q & co", "x").Hint("abx envs"), true)
	want := `{"error":{"code":"NOT_FOUND","message":"no env \"x\" & co","hint":["abx envs"],"exitCode":4}}` + "\n"
	if b.String() != want {
		t.Errorf("got  %swant %s", b.String(), want)
	}
	if !json.Valid(b.Bytes()) {
		t.Error("not JSON")
	}
}

func TestPrintTextIsSafe(t *testing.T) {
	var b bytes.Buffer
	Print(&b, New(ServerError, "boom\x1b[2J").Choices([]string{"a", "b"}, "a"), false)
	want := "error: boom\\x1b[2J\nhint: did you mean a?\nhint: valid: a, b\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestFromKeepsTheCause(t *testing.T) {
	e := New(Unreachable, "x").Because(io.EOF)
	if got := From(fmt.Errorf("wrapped: %w", e)); got != e || !errors.Is(got, io.EOF) {
		t.Errorf("From lost the error: %v", got)
	}
	if got := From(io.EOF); got.Code != Internal || got.Exit != 1 {
		t.Errorf("foreign error became %+v", got)
	}
}

func TestJSONHoldsNoTerminalControls(t *testing.T) {
	message := "a\u009b31m\u202eb\u007f c"
	var b bytes.Buffer
	Print(&b, New(ServerError, "%s", message), true)
	for _, r := range []string{"\u009b", "\u202e", "\u007f"} {
		if strings.Contains(b.String(), r) {
			t.Errorf("%q stands in %q", r, b.String())
		}
	}
	var back struct{ Error struct{ Message string } }
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Error.Message != message {
		t.Errorf("%q reads back as %q, %v", b.String(), back.Error.Message, err)
	}
}
