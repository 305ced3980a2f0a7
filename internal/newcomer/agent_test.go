// Package newcomer lets a scripted agent meet the product for the first time: it has the binary and the skills and
// nothing else, and takes no step that an earlier output did not name.
package newcomer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// hangs is far above what one command takes, so that only a hang meets it.
const hangs = 3 * time.Minute

// agent is what has been read so far, and a machine.
type agent struct {
	t    *testing.T
	home string
	path string
	env  []string
	read strings.Builder
}

func newAgent(t *testing.T, path string) *agent {
	t.Helper()
	return &agent{t: t, home: t.TempDir(), path: path}
}

// values are the arguments of a template by the name in braces.
type values map[string]string

var slot = regexp.MustCompile(`\{[a-z]+\}`)

// run takes a step: a command template such as `abx envs {env} docs`, its values, and flags that may be added to it. The
// template must stand in what was read, with anything in the place of its values; so must each flag; and each value must
// have been read, unless it is a number or a file of the agent's own.
func (a *agent) run(template string, fill values, flags ...string) answer {
	a.t.Helper()
	known := a.read.String()
	a.named(template, known)
	args := strings.Fields(template)
	for i, word := range args {
		if name := slot.FindString(word); name != "" {
			value := fill[strings.Trim(name, "{}")]
			if value == "" || !isNumber(value) && !strings.Contains(known, value) && !strings.HasPrefix(value, a.home) {
				a.t.Errorf("%s: the value %q of %s is a guess", template, value, name)
			}
			args[i] = strings.Replace(word, name, value, 1)
		}
	}
	for _, flag := range flags {
		if strings.HasPrefix(flag, "-") && !strings.Contains(known, flag) {
			a.t.Errorf("%s: nothing that was read names the flag %s", template, flag)
		}
	}
	return a.exec("", append(args, flags...)...)
}

// named asserts that what was read holds the command, with anything in the place of its values.
func (a *agent) named(template, known string) {
	a.t.Helper()
	var words []string
	for word := range strings.FieldsSeq(template) {
		if slot.MatchString(word) {
			words = append(words, `[^\s"`+"`"+`]+`)
		} else {
			words = append(words, regexp.QuoteMeta(word))
		}
	}
	if !regexp.MustCompile(strings.Join(words, `\s+`)).MatchString(known) {
		a.t.Errorf("nothing that was read names the command %q", template)
	}
}

func isNumber(s string) bool { return strings.Trim(s, "0123456789") == "" }

// answer is how a command ended.
type answer struct {
	t        *testing.T
	command  string
	code     int
	out, err string
}

// exec runs a program and reads all that it says.
func (a *agent) exec(stdin string, args ...string) answer {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if found, err := exec.LookPath(filepath.Join(a.path, args[0])); err == nil {
		cmd.Path, cmd.Err = found, nil
	}
	cmd.Dir = a.home
	cmd.Env = append([]string{"HOME=" + a.home, "PATH=" + a.path + ":" + os.Getenv("PATH"), "AGENTBOX_KEYRING=file"}, a.env...)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		a.t.Fatalf("%v: %v", args, err)
	}
	a.read.WriteString(stdout.String() + "\n" + stderr.String() + "\n")
	return answer{a.t, strings.Join(args, " "), cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// exits holds the answer to an exit code.
func (r answer) exits(code int) answer {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("%s: exit %d, want %d\n%s%s", r.command, r.code, code, r.out, r.err)
	}
	return r
}

// json reads the output into v.
func (r answer) json(v any) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.out), v); err != nil {
		r.t.Fatalf("%s: %v\n%s", r.command, err, r.out)
	}
}

// failure is what an error says with --json.
type failure struct {
	Code       string
	Hint       []string
	Suggestion string
	Approval   struct{ ApprovalID string }
}

func (r answer) failure() failure {
	r.t.Helper()
	var e struct{ Error failure }
	if err := json.Unmarshal([]byte(r.err), &e); err != nil {
		r.t.Fatalf("%s: %v\n%s", r.command, err, r.err)
	}
	return e.Error
}
