package skillscmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/skills"
)

func run(t *testing.T, asJSON bool, home string, args ...string) (string, error) {
	t.Helper()
	cmd := New(Options{
		Getenv: func(k string) string { return map[string]string{"HOME": home}[k] },
		Print: func(cmd *cobra.Command, v any, text func(io.Writer) error) error {
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			return text(cmd.OutOrStdout())
		},
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestInstallIsRepeatable(t *testing.T) {
	home := t.TempDir()
	for i, wantWritten := range []int{len(skills.All()), 0} {
		out, err := run(t, true, home, "install", "--for", "claude-code")
		var done Installed
		if err == nil {
			err = json.Unmarshal([]byte(out), &done)
		}
		if err != nil || len(done.Written) != wantWritten || len(done.Written)+len(done.Unchanged) != len(skills.All()) {
			t.Fatalf("run %d: %v\n%s", i, err, out)
		}
	}
	raw, err := os.ReadFile(filepath.Join(home, ".claude", "skills", "abx-common", "SKILL.md"))
	if s, _ := skills.Find("abx-common"); err != nil || string(raw) != s.Text {
		t.Fatalf("installed file differs: %v", err)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "abx-observe", "SKILL.md")
	if err := writeFile(foreign, "mine"); err != nil {
		t.Fatal(err)
	}
	_, err := run(t, false, dir, "install", "--dir", dir)
	wantCode(t, err, clierr.Conflict)
	if raw, _ := os.ReadFile(foreign); string(raw) != "mine" {
		t.Fatalf("the foreign file reads %q", raw)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Fatalf("something was written all the same: %v", entries)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		args []string
		code string
	}{
		{[]string{"show", "observe"}, clierr.InvalidValue},
		{[]string{"show"}, clierr.MissingValue},
		{[]string{"show", "abx-common", "abx-observe"}, "TOO_MANY_WORDS"},
		{[]string{"list", "abx-common"}, "TOO_MANY_WORDS"},
		{[]string{"install", "abx-common"}, "TOO_MANY_WORDS"},
		{[]string{"install", "--for", "vim"}, clierr.InvalidValue},
		{[]string{"install", "--for", "codex", "--dir", "x"}, clierr.InvalidValue},
		{[]string{"remove"}, clierr.UnknownCommand},
		{nil, clierr.MissingValue},
	} {
		_, err := run(t, false, t.TempDir(), c.args...)
		wantCode(t, err, c.code)
	}
}

func TestShowPrintsTheFile(t *testing.T) {
	out, err := run(t, false, t.TempDir(), "show", "abx-common")
	if s, _ := skills.Find("abx-common"); err != nil || out != s.Text {
		t.Fatalf("%v", err)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *clierr.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("got %v, want code %s", err, code)
	}
}
