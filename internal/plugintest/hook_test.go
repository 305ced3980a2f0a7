package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// abx is the real program, built once.
var abx string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "abx-plugin")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		abx = filepath.Join(dir, "abx")
		build := exec.Command("go", "build", "-o", abx, "./cmd/abx")
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(err.Error() + "\n" + string(out))
		}
		return m.Run()
	}())
}

const (
	endpoint = "http://127.0.0.1:8480"
	key      = "agbx_00112233445566778899aabbccddeeff"
)

// session is a person's machine on which Claude Code starts.
type session struct {
	t    *testing.T
	home string
	bin  string
	log  string // the command lines that abx was called with
	env  map[string]string
}

func newSession(t *testing.T) *session {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "some one")
	s := &session{t: t, home: filepath.Join(dir, "home"), bin: filepath.Join(dir, "bin"), log: filepath.Join(dir, "log")}
	for _, d := range []string{s.home, s.bin} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	wrapper := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>\"" + s.log + "\"\nexec \"" + abx + "\" \"$@\"\n"
	if err := os.WriteFile(filepath.Join(s.bin, "abx"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	plugin, err := filepath.Abs(root + "plugin")
	if err != nil {
		t.Fatal(err)
	}
	s.env = map[string]string{
		"HOME": s.home, "PATH": s.bin + ":/usr/bin:/bin", "AGENTBOX_KEYRING": "file", "CLAUDE_PLUGIN_ROOT": plugin,
		"CLAUDE_ENV_FILE": filepath.Join(dir, "session.env"), "CLAUDE_PLUGIN_DATA": filepath.Join(dir, "plugin data"),
		"CLAUDE_PLUGIN_OPTION_ENDPOINT": endpoint, "CLAUDE_PLUGIN_OPTION_API_KEY": key,
	}
	return s
}

// start runs the hook as hooks.json says and returns what it puts into the conversation. Nothing may show the key.
func (s *session) start() string {
	s.t.Helper()
	var hooks struct {
		Hooks map[string][]struct {
			Hooks []struct{ Type, Command string }
		}
	}
	readJSON(s.t, "plugin/hooks/hooks.json", &hooks)
	hook := hooks.Hooks["SessionStart"][0].Hooks[0]
	out, errs, err := s.run("/bin/sh", "-c", hook.Command)
	if err != nil || errs != "" {
		s.t.Errorf("the hook: %v, errors %q", err, errs)
	}
	calls, _ := os.ReadFile(s.log)
	for where, text := range map[string]string{"conversation": out, "command line": string(calls)} {
		if strings.Contains(text, s.env["CLAUDE_PLUGIN_OPTION_API_KEY"]) && s.env["CLAUDE_PLUGIN_OPTION_API_KEY"] != "" {
			s.t.Errorf("the key is in the %s: %s", where, text)
		}
	}
	return out
}

func (s *session) run(name string, args ...string) (out, errs string, err error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	for k, v := range s.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// abx runs abx as the person would, without the wrapper.
func (s *session) abx(args ...string) string {
	s.t.Helper()
	out, errs, err := s.run(abx, args...)
	if err != nil {
		s.t.Fatalf("abx %v: %v\n%s", args, err, errs)
	}
	return out
}

// calls are the command lines with which the hook has called abx; they are forgotten then.
func (s *session) calls() string {
	raw, _ := os.ReadFile(s.log)
	_ = os.Remove(s.log)
	return string(raw)
}

// pointed tells whether the session's commands go to the plugin's context, and forgets it, as a new session does.
func (s *session) pointed() bool {
	raw, _ := os.ReadFile(s.env["CLAUDE_ENV_FILE"])
	_ = os.Remove(s.env["CLAUDE_ENV_FILE"])
	return strings.Contains(string(raw), "AGENTBOX_CONTEXT=agentbox")
}

func (s *session) address(contextName string) string {
	s.t.Helper()
	var shown map[string]struct{ Value string }
	if err := json.Unmarshal([]byte(s.abx("context", "show", contextName, "--json")), &shown); err != nil {
		s.t.Fatal(err)
	}
	return shown["address"].Value
}

// savedKeys is everything in abx's credential file.
func (s *session) savedKeys() string {
	raw, err := os.ReadFile(filepath.Join(s.home, ".config", "abx", "credentials.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(raw)
}

func TestHookSavesTheSettingsOnce(t *testing.T) {
	s := newSession(t)
	if out := s.start(); out != "" {
		t.Errorf("it said %q", out)
	}
	if got := s.address("agentbox"); got != endpoint {
		t.Errorf("the context leads to %q", got)
	}
	if !strings.Contains(s.savedKeys(), key) {
		t.Error("the key is not in the store")
	}
	if raw, err := os.ReadFile(s.env["CLAUDE_ENV_FILE"]); err != nil || string(raw) != "export AGENTBOX_CONTEXT=agentbox\n" {
		t.Errorf("the session's environment: %q, %v", raw, err)
	}
	if !strings.Contains(s.calls(), "context set") {
		t.Error("abx was not told")
	}
	s.start()
	if calls := s.calls(); strings.Contains(calls, "context set") {
		t.Errorf("with the same settings the hook called abx %s", calls)
	}
	state, err := os.ReadFile(filepath.Join(s.env["CLAUDE_PLUGIN_DATA"], "claude-code-plugin"))
	if hash, _, _ := strings.Cut(string(state), "\n"); err != nil || strings.Contains(string(state), key) || len(hash) != 64 {
		t.Errorf("the plugin remembers %q (%v), want a hash and which context it saved", state, err)
	}

	s.env["CLAUDE_PLUGIN_OPTION_API_KEY"] = "agbx_ffeeddccbbaa99887766554433221100"
	s.start()
	if keys := s.savedKeys(); strings.Contains(keys, key) || !strings.Contains(keys, "agbx_ffee") {
		t.Error("the new key did not replace the old one")
	}
	s.env["CLAUDE_PLUGIN_OPTION_ENDPOINT"] = "HTTP://127.0.0.1:8481//"
	s.start() // twice: the address is saved in another form than it was given
	s.start()
	if got := s.address("agentbox"); got != "http://127.0.0.1:8481" {
		t.Errorf("the context leads to %q", got)
	}
}

func TestHookLeavesThePersonsContextsAlone(t *testing.T) {
	s := newSession(t)
	s.abx("context", "set", "work", "--endpoint", "https://work.example.com", "--api-key", "agbx_work")
	s.start()
	if s.address("work") != "https://work.example.com" || !strings.Contains(s.savedKeys(), "agbx_work") {
		t.Error("the context work was changed")
	}
	var shown struct{ Context struct{ Value string } }
	if err := json.Unmarshal([]byte(s.abx("context", "show", "--json")), &shown); err != nil || shown.Context.Value != "work" {
		t.Errorf("the current context is %q (%v), want work", shown.Context.Value, err)
	}
}

func TestHookLeavesAnOwnContextOfTheNameAlone(t *testing.T) {
	s := newSession(t)
	s.abx("context", "set", "agentbox", "--endpoint", "https://mine.example.com", "--api-key", "agbx_mine")
	if out := s.start(); !strings.Contains(out, "https://mine.example.com") || !strings.Contains(out, "abx context rename agentbox") {
		t.Errorf("it said %q", out)
	}
	if s.address("agentbox") != "https://mine.example.com" || !strings.Contains(s.savedKeys(), "agbx_mine") {
		t.Error("the person's context was changed")
	}
	if _, err := os.Stat(s.env["CLAUDE_ENV_FILE"]); err == nil {
		t.Error("the session was pointed at a context that is not the plugin's")
	}
}

// What the hook saved once is not its own for ever: the person may have put something else in its place.
func TestHookReplacesOnlyWhatItSaved(t *testing.T) {
	for name, mine := range map[string]string{"another address": "http://127.0.0.1:9999", "the same address": endpoint} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			s.start()
			if !s.pointed() {
				t.Error("the session was not pointed at the plugin's context")
			}
			s.abx("context", "remove", "agentbox")
			s.abx("context", "set", "agentbox", "--endpoint", mine, "--api-key", "agbx_mine")
			for _, settings := range []string{key, "agbx_ffeeddccbbaa99887766554433221100"} {
				s.env["CLAUDE_PLUGIN_OPTION_API_KEY"] = settings
				if out := s.start(); !strings.Contains(out, mine+", is not the one that the plugin saved") || !strings.Contains(out, "abx context rename agentbox") {
					t.Errorf("it said %q", out)
				}
				if s.address("agentbox") != mine || !strings.Contains(s.savedKeys(), "agbx_mine") {
					t.Error("the person's context was changed")
				}
				if s.pointed() {
					t.Error("the session was pointed at a context that is not the plugin's")
				}
			}
			s.abx("context", "rename", "agentbox", "mine")
			if out := s.start(); out != "" || s.address("agentbox") != endpoint || s.address("mine") != mine || !s.pointed() {
				t.Errorf("after the rename it said %q, agentbox leads to %s, mine to %s", out, s.address("agentbox"), s.address("mine"))
			}
		})
	}
}

func TestHookSavesAContextThatIsGoneAgain(t *testing.T) {
	s := newSession(t)
	s.start()
	s.abx("context", "remove", "agentbox")
	_ = s.pointed()
	if out := s.start(); out != "" || !s.pointed() || s.address("agentbox") != endpoint {
		t.Errorf("it said %q, and agentbox leads to %q", out, s.address("agentbox"))
	}
}

// A change that is no replacement leaves the context the plugin's.
func TestHookKeepsWhatWasAddedToItsContext(t *testing.T) {
	s := newSession(t)
	s.start()
	s.abx("context", "set", "agentbox", "--cluster", "east")
	s.env["CLAUDE_PLUGIN_OPTION_API_KEY"] = "agbx_ffeeddccbbaa99887766554433221100"
	if out := s.start(); out != "" || !strings.Contains(s.savedKeys(), "agbx_ffee") {
		t.Errorf("it said %q", out)
	}
}

func TestHookRespectsTheSessionsOwnSettings(t *testing.T) {
	s := newSession(t)
	s.env["AGENTBOX_ENDPOINT"], s.env["AGENTBOX_API_KEY"] = "https://other.example.com", "agbx_other"
	s.start()
	if _, err := os.Stat(s.env["CLAUDE_ENV_FILE"]); err == nil {
		t.Error("the session names an endpoint of its own, and was pointed elsewhere")
	}
	delete(s.env, "AGENTBOX_ENDPOINT")
	delete(s.env, "AGENTBOX_API_KEY")
	if got := s.address("agentbox"); got != endpoint {
		t.Errorf("the context leads to %q", got)
	}
}

func TestHookSaysWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *session)
		want   string
	}{
		"nothing is set": {func(s *session) {
			delete(s.env, "CLAUDE_PLUGIN_OPTION_ENDPOINT")
			delete(s.env, "CLAUDE_PLUGIN_OPTION_API_KEY")
		}, ""},
		"no key":      {func(s *session) { delete(s.env, "CLAUDE_PLUGIN_OPTION_API_KEY") }, "needs both its settings"},
		"no abx":      {func(s *session) { _ = os.Remove(filepath.Join(s.bin, "abx")) }, "abx is not installed"},
		"no address":  {func(s *session) { s.env["CLAUDE_PLUGIN_OPTION_ENDPOINT"] = "somewhere" }, "error: "},
		"no env file": {func(s *session) { delete(s.env, "CLAUDE_ENV_FILE") }, "use abx with --context agentbox"},
		"nowhere to remember": {func(s *session) {
			path := filepath.Join(s.home, "a file")
			_ = os.WriteFile(path, nil, 0o600)
			s.env["CLAUDE_PLUGIN_DATA"] = path
		}, "cannot write to "},
		"broken contexts": {func(s *session) {
			path := filepath.Join(s.home, ".config", "abx", "config.json")
			_ = os.MkdirAll(filepath.Dir(path), 0o700)
			_ = os.WriteFile(path, []byte("{"), 0o600)
		}, "error: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			c.change(s)
			out := s.start()
			if !strings.Contains(out, c.want) || c.want == "" && out != "" {
				t.Errorf("it said %q, want %q", out, c.want)
			}
		})
	}
}
