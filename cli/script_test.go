package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"navix.sh/agentbox/cli"
	"navix.sh/agentbox/internal/stub"
)

// endpoint is the address that scripts see. The stub is reached as its proxy, so that
// golden output holds no port and every request also tests the proxy settings.
const endpoint = "http://abx.example.com"

// raceOptions is GORACE for the hundreds of programs that tests start: under the race detector each would sleep for a
// second when it ends.
const raceOptions = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	cli.Version = "v1.0.0" // of the abx inside the tests: a build from source refuses `abx upgrade` whatever its flags
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

var programDir string

// program builds abx, with the race detector where the tests have it, and returns the folder that holds it. The test
// binary itself could play abx, but takes three times as long to start.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "abx-test-")
	if err != nil {
		return "", err
	}
	programDir = dir
	args := append([]string{"build", "-o", dir}, buildFlags...)
	if out, err := exec.Command("go", append(args, "navix.sh/agentbox/cmd/abx")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build cmd/abx: %w\n%s", err, out)
	}
	return dir, nil
})

// TestScripts runs testdata/script. UPDATE=1 rewrites what the scripts compare with.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                filepath.Join("..", "testdata", "script"),
		UpdateScripts:      os.Getenv("UPDATE") != "",
		RequireUniqueNames: true,
		Setup:              setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"abx": abx, "exits": exits, "stub": control, "requests": requests,
		},
	})
}

func setup(env *testscript.Env) error {
	dir, err := program()
	if err != nil {
		return err
	}
	s, err := stub.New()
	if err != nil {
		return err
	}
	env.Defer(func() {
		s.Close()
		for _, problem := range s.Invalid() {
			env.T().Log("not in the document: " + problem)
			env.T().FailNow()
		}
	})
	env.Values["stub"] = s
	env.Setenv("PATH", dir+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("XDG_CONFIG_HOME", "")
	env.Setenv("XDG_CACHE_HOME", "")
	env.Setenv("AGENTBOX_ENDPOINT", endpoint)
	env.Setenv("AGENTBOX_API_KEY", stub.Key)
	env.Setenv("AGENTBOX_KEYRING", "file")
	env.Setenv("HTTP_PROXY", s.URL)
	env.Setenv("http_proxy", s.URL)
	env.Setenv("NO_PROXY", "")
	env.Setenv("KEY", stub.Key)
	env.Setenv("GORACE", raceOptions)
	return nil
}

// abx runs a command line that succeeds; exits is for the others.
func abx(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("say which exit code is meant: exits CODE abx …")
	}
	ts.Check(ts.Exec("abx", args...))
}

// exits runs a program and checks its exit code: exits 2 abx nonsense
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		code = failed.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// control steers the stub: stub legacy | clusters ID… | rows OPERATION N | next OPERATION STATUS [FILE] [HEADER=VALUE…]
func control(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value("stub").(*stub.Server)
	number := func(word string) int {
		n, err := strconv.Atoi(word)
		ts.Check(err)
		return n
	}
	switch {
	case args[0] == "legacy":
		s.SetLegacy()
	case args[0] == "clusters":
		s.SetClusters(args[1:]...)
	case args[0] == "rows" && len(args) == 3:
		s.SetRows(args[1], number(args[2]))
	case args[0] == "next" && len(args) >= 3:
		a := stub.Answer{Status: number(args[2]), Header: map[string]string{}}
		for _, word := range args[3:] {
			if name, value, isHeader := strings.Cut(word, "="); isHeader {
				a.Header[name] = value
				continue
			}
			a.Body = ts.ReadFile(word)
		}
		s.Next(args[1], a)
	default:
		ts.Fatalf("unknown: stub %v", args)
	}
}

// requests writes what the stub was asked since the last time to a file: requests FILE
func requests(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value("stub").(*stub.Server)
	content := ""
	if log := s.Log(); len(log) > 0 {
		content = strings.Join(log, "\n") + "\n"
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(content), 0o600))
	fmt.Fprint(ts.Stdout(), content)
}
