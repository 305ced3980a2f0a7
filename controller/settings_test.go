package controller

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

func noEnv(string) (string, bool) { return "", false }

func TestFlagWinsOverEnvironment(t *testing.T) {
	env := func(k string) (string, bool) {
		m := map[string]string{"AGENTBOX_LISTEN": "127.0.0.1:1", "AGENTBOX_DOMAIN": "env.example"}
		v, ok := m[k]
		return v, ok
	}
	s, err := ParseSettings([]string{"--listen", "127.0.0.1:0"}, env, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if s.Listen != "127.0.0.1:0" || s.Domain != "env.example" {
		t.Fatalf("listen %q, domain %q", s.Listen, s.Domain)
	}
}

func TestSettingsRefuseNonsense(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--tls-cert", "c.pem"}, "go together"},
		{[]string{"--tls-cert", "c", "--tls-key", "k", "--tls-self-signed"}, "exclude each other"},
		{[]string{"--cluster-id", "a/b"}, "--cluster-id"},
		{[]string{"serve"}, "unexpected argument"},
		{[]string{"--no-such"}, "see controller --help"},
	} {
		_, err := ParseSettings(c.args, noEnv, os.Stderr)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want an error with %q", c.args, err, c.want)
		}
	}
}

// TestSettingsAreDocumented holds the table in docs/operations.md to the list in the code, in both directions.
func TestSettingsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var s Settings
	documented := 0
	for _, line := range strings.Split(string(raw), "\n") {
		if strings.HasPrefix(line, "| `--") {
			documented++
		}
	}
	rows := s.table()
	for _, r := range rows {
		want := fmt.Sprintf("| `--%s` | `%s` |", r.Flag, r.Env)
		if !strings.Contains(string(raw), want) {
			t.Errorf("docs/operations.md lacks a row that begins %s", want)
		}
	}
	if documented != len(rows) {
		t.Errorf("docs/operations.md documents %d flags, the controller has %d", documented, len(rows))
	}
	var help strings.Builder
	if _, err := ParseSettings([]string{"--help"}, noEnv, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("--help: %v", err)
	}
	for _, r := range rows {
		if !strings.Contains(help.String(), "--"+r.Flag) || !strings.Contains(help.String(), r.Env) {
			t.Errorf("--help lacks --%s or %s", r.Flag, r.Env)
		}
	}
}
