package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

func TestArrange(t *testing.T) {
	root := NewApp().Command()
	for _, c := range []struct{ in, want string }{
		{"envs", "envs"},
		{"--json envs web", "envs web --json"},
		{"--wide envs", "envs --wide"},
		{"--cluster c envs --filter a=b x", "envs x --cluster c --filter a=b"},
		{"envs --limit=3 x", "envs x --limit=3"},
		{"create envs -f - --dry-run", "create envs -f - --dry-run"},
		{"-f file create envs", "create envs -f file"},
		{"envs -ffile", "envs -ffile"},
		{"scale envs a pools b --replicas -1", "scale envs a pools b --replicas -1"},
		{"envs --nonsense x", "envs x --nonsense"},
		{"envs -- --json", "envs -- --json"},
		{"--json envs -- -x", "envs --json -- -x"},
		{"upgrade --version v1 --json", "upgrade --version v1 --json"},
		{"--version", "--version"},
		{"skills install --dir d --json", "skills install --dir d --json"},
		{"__complete --wide e", "__complete e"},
		{"__complete --wide --format nd", "__complete --format nd"},
		{"__complete --wide envs --filter mo", "__complete envs --wide --filter mo"},
		{"__complete create --dry-run envs de", "__complete create envs --dry-run de"},
		{"__completeNoDesc --json -- envs x", "__completeNoDesc --json -- envs x"},
		{"__complete", "__complete"},
		{"- envs", "- envs"},
	} {
		got, err := arrange(root, strings.Fields(c.in))
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("arrange(%s) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"envs --filter", "envs --filter --json", "envs -f --json"} {
		if _, err := arrange(root, strings.Fields(in)); clierr.From(err).Code != clierr.MissingValue {
			t.Errorf("arrange(%s): %v", in, err)
		}
	}
}

// FuzzArrange checks that no word is lost or invented, whatever the line.
func FuzzArrange(f *testing.F) {
	for _, s := range []string{"--json envs", "envs -- x", "-f", "--limit --json", "-", "--", "---", "--=", "-f=x -- --"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Fields(line)
		got, err := arrange(NewApp().Command(), args)
		if err != nil || strings.HasPrefix(strings.TrimSpace(line), cobra.ShellCompRequestCmd) { // which leaves out what completion has no use for
			return
		}
		a, b := slices.Sorted(slices.Values(args)), slices.Sorted(slices.Values(got))
		if diff := cmp.Diff(a, b); diff != "" {
			t.Error(diff)
		}
		wantsJSON(args)
	})
}

func TestWantsJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"envs --json": true, "--format json": true, "--format=ndjson": true, "--json=true": true,
		"envs": false, "--json=false": false, "-- --json": false, "--format yaml": false, "--format": false, "--csv": false,
	} {
		if got := wantsJSON(strings.Fields(line)); got != want {
			t.Errorf("wantsJSON(%s) = %v", line, got)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"plain-1.2_x/y": "plain-1.2_x/y", "a b": "'a b'", "": "''", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'", "<env>": "'<env>'", "日本": "'日本'",
	} {
		if got := quote(in); got != want {
			t.Errorf("quote(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	if got, want := wrap("one two three four", "  ", 11), "one two\n  three\n  four"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := wrap(strings.Repeat("x", 200), "", 10); len(got) != 200 {
		t.Error("a word was broken")
	}
}

// TestQuotaReadings checks the three readings of a ceiling and what follows from them.
func TestQuotaReadings(t *testing.T) {
	for _, c := range []struct{ name, quota, ceiling, free, note string }{
		{"checking is off", `{"metadata":{"quota.scitix.ai/skip-check":"true"},"resources":{"total":{"k":5}}}`, unlimited, "", noteNoCap},
		{"a cap", `{"metadata":{"quota.scitix.ai/skip-check":"false"},"resources":{"total":{"k":10},"used":{"k":3},"reserved":{"k":2}}}`, "10", "5", ""},
		{"a cap, free as the server says", `{"metadata":{"quota.scitix.ai/skip-check":"false"},"resources":{"total":{"k":10},"free":{"k":9}}}`, "10", "9", ""},
		{"more used than there is", `{"metadata":{"quota.scitix.ai/skip-check":"false"},"resources":{"total":{"k":1},"used":{"k":3}}}`, "1", "0", ""},
		{"nothing allocated", `{"metadata":{"quota.scitix.ai/skip-check":"false"},"resources":{"total":{"k":0}}}`, "0", "0", noteNoneToHave},
		{"nobody says", `{"resources":{"used":{"k":1}}}`, unlimited, "", noteNoCap},
		{"checked without a total", `{"metadata":{"quota.scitix.ai/skip-check":"false"},"resources":{"used":{"k":1}}}`, "", "", ""},
		{"fractions", `{"metadata":{"quota.scitix.ai/skip-check":"false"},"resources":{"total":{"k":1.5},"used":{"k":0.25}}}`, "1.5", "1.25", ""},
		{"an absurd number", `{"metadata":{"quota.scitix.ai/skip-check":"false"},"resources":{"total":{"k":1e999999999}}}`, "1e999999999", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			value, err := output.Decode([]byte(c.quota))
			if err != nil {
				t.Fatal(err)
			}
			r := row{value: value, key: "k"}
			got := []string{output.Plain(derive("quota-ceiling", r)), output.Plain(derive("quota-free", r)), output.Plain(derive("quota-note", r))}
			if diff := cmp.Diff([]string{c.ceiling, c.free, c.note}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, name := range registry.Derivations {
		derive(name, row{}) // nothing to derive from is no reason to fail
	}
}

func TestSettled(t *testing.T) {
	ix := registry.Default()
	for _, c := range []struct {
		kind, object string
		want         bool
	}{
		{"pool", `{"spec":{"replicas":4},"status":{"idleReplicas":3,"runningReplicas":1,"phase":"Ready"}}`, true},
		{"pool", `{"spec":{"replicas":4},"status":{"idleReplicas":3,"phase":"Ready"}}`, false},
		{"pool", `{"spec":{"replicas":4},"status":{"idleReplicas":4,"phase":"ScalingDown"}}`, false},
		{"pool", `{"spec":{"replicas":2},"status":{"idleReplicas":2,"stoppingReplicas":2,"phase":"Ready"}}`, false},
		{"pool", `{"spec":{"replicas":2},"status":{"idleReplicas":2,"updatedReplicas":1,"phase":"Ready"}}`, false},
		{"pool", `{"spec":{"replicas":0},"status":{"idleReplicas":0,"phase":"Ready"}}`, true},
		{"pool", `{"spec":{"replicas":0},"status":{"idleReplicas":0,"phase":"Pending"}}`, true},
		{"pool", `{"spec":{"replicas":0},"status":{"phase":"Ready"}}`, false},
		{"pool", `{"spec":{},"status":{"idleReplicas":4,"phase":"Ready"}}`, false},
		{"pool", `{"name":"demo-1c2gi"}`, false},
		{"pool", `{"spec":{"replicas":1},"status":{"idleReplicas":1,"phase":"Pending"}}`, false},
		{"pool", `{"generation":3,"spec":{"replicas":1},"status":{"observedGeneration":2,"idleReplicas":4,"phase":"Ready"}}`, false},
		{"pool", `{"generation":3,"spec":{"replicas":1},"status":{"idleReplicas":4,"phase":"Ready"}}`, false},
		{"pool", `{"generation":3,"spec":{"replicas":4},"status":{"observedGeneration":3,"idleReplicas":4,"phase":"Ready"}}`, true},
		{"env", `{"status":{"desiredReplicas":4,"idleReplicas":1}}`, false},
		{"env", `{"status":{"memberCount":0,"desiredReplicas":0,"idleReplicas":0}}`, true},
		{"env", `{"status":{"memberCount":0}}`, false},
		{"env", `{"generation":2,"status":{"observedGeneration":1}}`, false},
		{"env", `{"status":{"conditions":[{"type":"TemplateConsistent","status":"False","reason":"RolloutInProgress"}]}}`, false},
		{"env", `{"status":{"desiredReplicas":0,"idleReplicas":0,"conditions":[{"type":"TemplateConsistent","status":"False","reason":"TemplateNotFound"}]}}`, true},
		{"scaling-group", `{}`, true},
	} {
		value, err := output.Decode([]byte(c.object))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := settled(ix.ByKind(c.kind), value); got != c.want {
			t.Errorf("settled(%s, %s) = %v", c.kind, c.object, got)
		}
	}
}

// TestFieldsOfARegister: a list takes its columns, one object its detail lines, and of the other's names those that its shape
// has.
func TestFieldsOfARegister(t *testing.T) {
	a := NewApp()
	for i := range a.Index.Resources {
		r := &a.Index.Resources[i]
		accepts := func(of register, name string, want bool) {
			if _, err := a.findField(r, of, name, false); (err == nil) != want {
				t.Errorf("%s (one object: %v) %s: %v", r.Plural, of.item, name, err)
			}
		}
		if r.List != nil {
			for _, c := range r.Columns {
				accepts(a.rowsOf(r), c.ID, true)
			}
			for _, d := range r.Detail {
				if schema := a.rowSchema(r); r.Column(d.ID) == nil && schema != nil {
					accepts(a.rowsOf(r), d.ID, a.hasPath(schema, d.Path) || a.hasPath(schema, d.ID))
				}
			}
		}
		if r.Item != nil {
			for _, d := range r.Detail {
				accepts(a.itemOf(r), d.ID, true)
			}
		}
	}
}

// TestEveryFlagIsExplained holds the flag table to its own rules.
func TestEveryFlagIsExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range flagTable() {
		if seen[f.Name] || f.Help == "" || f.Groups == 0 || (f.Kind == kindBool) != (f.Arg == "") {
			t.Errorf("flag %+v", f)
		}
		seen[f.Name] = true
	}
}
