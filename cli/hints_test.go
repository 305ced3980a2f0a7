package cli_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"navix.sh/agentbox/internal/markdown"
)

// hintPlaceholders stand for what only the caller knows.
var hintPlaceholders = strings.NewReplacer("<cluster>", "demo", "<env>", "demo", "<pool>", "demo", "<sandbox>", "demo", "<name>", "demo",
	"<scaling-group>", "demo", "<approval>", "demo", "<api-key>", "demo", "<admin-api-key>", "demo", "<admin-template>", "demo", "<template>", "demo",
	"<grant>", "demo", "<team>", "demo", "> FILE", "", "--file=", "-f ", "< KEYFILE", "", "--replicas N", "--replicas 3", "URL", "http://127.0.0.1:1", "'", "")

var hintedCommand = regexp.MustCompile(`(?:^|: )(abx [a-z].*)$`)

// TestHintsRun: a command that an error proposes is not refused itself.
func TestHintsRun(t *testing.T) {
	t.Parallel()
	j := newJudge(t)
	wrong := []string{
		"env", "pool", "pools", "pools x", "envs demo pool", "envs demo logs", "envs demo scale", "envs demo pools x y", "envs demo pools x y z",
		"envs demo docs more", "sandboxes sbx metrics more", "api-keys NAME", "admin-teams research", "quotas x",
		"apply envs", "apply envs demo", "apply envs demo -f x.json", "get envs demo", "describe sandbox x --json", "list envs --wide", "rm envs demo",
		"edit envs demo", "put envs demo pools p -f x.json", "post envs demo pools -f x.json", "remove api-keys x --dry-run",
		"envs demo update -f x.json", "envs demo pools p scale --replicas 3", "envs demo pools create -f x.json", "approvals x approve", "envs demo delete",
		"create", "update", "delete", "scale", "approve", "create sandboxes", "create sandbox", "create pools -f x.json", "create envs demo -f x.json",
		"create envs demo doc", "create envs", "update envs", "update envs demo", "delete envs", "delete envs demo docs", "delete envs demo docs x",
		"scale envs demo", "scale envs demo pools", "scale envs demo pools p", "scale pools p", "approve envs demo", "deny approvals", "promote api-keys x",
		"envs --editable", "envs demo docs --editable", "quotas --editable", "sandboxes x --editable", "clusters --editable", "events --editable",
		"envs demo --sort name", "envs demo --filter name=x --json", "envs demo --watch", "envs demo docs --limit 3", "envs demo pools p --wide",
		"clusters --watch", "clusters --all-clusters", "statistics --filter a=b", "statistics --watch", "envs demo --tail 3", "sandboxes x --follow",
		"sandboxes x logs --fields status", "sandboxes x logs --limit 3", "envs --replicas 3", "envs -f x.json", "create envs --csv", "delete envs demo --schema",
		"scale envs demo pools p --schema --replicas 3", "approve approvals x --dry-run", "whoami --csv", "whoami now", "version --fields a",
		"envs --filter ready=maybe", "envs --filter x", "envs --sort nope", "envs --fields nope", "envs --jsn", "envs --yes", "envs -json",
		"context sett", "context set", "context show nowhere", "context use nowhere", "context rename work",
		"skills", "skills shw", "skills show nothing", "skills show", "skills install x", "agent-context pool", "upgrade now", "help nothing", "completion",
	}
	for _, line := range wrong {
		code, _, errs := j.run(t, j.home, "", append(strings.Fields(line), "--json")...)
		if code != 2 {
			t.Errorf("abx %s: exit %d, nothing is wrong with it", line, code)
			continue
		}
		for _, hint := range errorOf(t, errs).Hint {
			m := hintedCommand.FindStringSubmatch(hint)
			if m == nil {
				continue
			}
			commands, err := markdown.Commands(hintPlaceholders.Replace(m[1]), "abx")
			if err != nil || len(commands) != 1 {
				t.Errorf("abx %s: the hint %q is no command: %v", line, hint, err)
				continue
			}
			words := slices.DeleteFunc(commands[0].Words[1:], func(w string) bool { return w == "" })
			if problem := j.problem(t, writtenLine{at: "hint", words: words}); problem != "" {
				t.Errorf("abx %s\nproposes %q: %s", line, hint, problem)
			}
		}
	}
}
