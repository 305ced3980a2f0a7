package cli_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"navix.sh/agentbox/registry"
)

// offer is a flag as help offers it: what stands for its value, and the closed set of values.
type offer struct {
	arg    string
	values []string
}

// closedSet is how help ends the line of a flag with a closed set.
var closedSet = regexp.MustCompile(`: ([a-z0-9-]+(?:, [a-z0-9-]+)+)$`)

// offersOf reads the flags that help shows for a form; sections of other forms are left out.
func offersOf(help, form string) map[string]offer {
	offers := map[string]offer{}
	in := false
	for line := range strings.SplitSeq(regexp.MustCompile(`\n {6,}`).ReplaceAllString(help, " "), "\n") {
		if !strings.HasPrefix(line, " ") {
			in = line == "Flags" || line == "Flags of "+form
			continue
		}
		name, about, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if _, long, ok := strings.Cut(name, ", "); ok {
			name = long
		}
		name, arg, _ := strings.Cut(name, " ")
		if !in || !strings.HasPrefix(name, "--") || name == "--help" {
			continue
		}
		o := offer{arg: arg}
		if set := closedSet.FindStringSubmatch(about); set != nil {
			o.values = strings.Split(set[1], ", ")
		}
		offers[name] = o
	}
	return offers
}

// formName is how help calls the form that a leaf is.
func (l leaf) formName() string {
	switch {
	case l.view != "":
		return l.view
	case l.verb != "":
		return l.verb
	case slices.Contains(l.words, exampleIDs[l.res.Kind]) && l.words[len(l.words)-1] == exampleIDs[l.res.Kind]:
		return "one " + l.res.Kind
	}
	return "the list"
}

// samples are values that a flag can have at the leaf.
func (l leaf) samples(t *testing.T, name string, o offer) []string {
	t.Helper()
	switch {
	case o.arg == "":
		return []string{""}
	case len(o.values) > 0:
		return o.values
	}
	switch name {
	case "--filter":
		f := l.res.Filters[0]
		return []string{f.Key + "=" + append(slices.Clone(f.Values), "x")[0]}
	case "--sort":
		return []string{l.res.Columns[0].ID}
	case "--fields":
		return []string{validFields(t, offline(t, append(l.complete(t), "--fields=nope")...).err)}
	case "--jq":
		return []string{"."}
	case "--limit", "--tail", "--replicas":
		return []string{"3"}
	case "--container":
		return []string{"main"}
	case "--file":
		return []string{""} // every run has it
	}
	t.Errorf("%v offers %s, for which there is no sample", l.args(), name)
	return nil
}

// validFields are the fields that the refusal of another one names, as a value of --fields.
func validFields(t *testing.T, refusal string) string {
	t.Helper()
	_, names, ok := strings.Cut(refusal, "hint: valid: ")
	if !ok {
		t.Errorf("the refusal of a field names none that there is: %s", refusal)
	}
	names, _, _ = strings.Cut(names, "\n")
	return strings.ReplaceAll(names, ", ", ",")
}

// complete is the leaf with what it cannot do without.
func (l leaf) complete(t *testing.T) []string {
	args := l.args()
	switch l.verb {
	case "create", "update":
		path := filepath.Join(t.TempDir(), "body.json")
		if err := os.WriteFile(path, exampleBody(args), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-f", path)
	case "scale":
		args = append(args, "--replicas", "3")
	}
	return slices.Clip(args)
}

// TestOfferedFlagsWork: what help and agent-context offer at an address is not refused there, and they offer the same.
func TestOfferedFlagsWork(t *testing.T) {
	t.Parallel()
	var whole struct {
		Resources []struct {
			Plural string
			Flags  map[string][]string
			Writes map[string]struct{ Flags []string }
		}
	}
	if err := json.Unmarshal([]byte(offline(t, "agent-context").out), &whole); err != nil {
		t.Fatal(err)
	}
	for _, l := range leaves() {
		if l.view != "" && l.res.View(l.view).Operation == "" {
			continue // only the console has it
		}
		t.Run(strings.Join(l.args(), "_"), func(t *testing.T) {
			offers := offersOf(offline(t, append(l.args(), "--help")...).out, l.formName())
			if len(offers) < 3 {
				t.Fatalf("help offers only %v", offers)
			}
			for name, o := range offers {
				for _, value := range l.samples(t, name, o) {
					args := append(l.complete(t), name)
					if name == "--schema" || name == "--editable" { // which write nothing, and take no file
						args = append(l.args(), name)
					}
					if o.arg != "" {
						args = append(args[:len(args)-1], name+"="+value)
					}
					if name == "--file" {
						args = l.complete(t)
					}
					if r := offline(t, args...); r.code != 0 && r.code != 9 {
						t.Errorf("abx %s: exit %d: %s", strings.Join(args, " "), r.code, r.err)
					}
				}
			}
			if _, ok := offers["--schema"]; ok {
				for _, with := range []string{"--jq=.schema", "--fields=schema", "--format=yaml"} {
					if r := offline(t, append(l.args(), "--schema", with)...); r.code != 0 {
						t.Errorf("%v --schema %s: exit %d: %s", l.args(), with, r.code, r.err)
					}
				}
			}
			var said []string
			for _, r := range whole.Resources {
				if r.Plural == l.res.Plural {
					form := map[string]string{"the list": "list", "one " + l.res.Kind: "item"}[l.formName()]
					if form == "" {
						form = l.formName()
					}
					said = append(r.Flags[form], r.Writes[form].Flags...)
				}
			}
			for i := range said {
				said[i], _, _ = strings.Cut(said[i], " ")
			}
			if want := slices.Sorted(maps.Keys(offers)); !slices.Equal(slices.Sorted(slices.Values(said)), want) {
				t.Errorf("help offers %v\nagent-context %v", want, said)
			}
		})
	}
}

// TestOfferedFlagsOfCommandsWork does the same for the commands that are neither a read nor a write.
func TestOfferedFlagsOfCommandsWork(t *testing.T) {
	t.Parallel()
	j := newJudge(t)
	for _, line := range []string{
		"whoami", "context", "context list", "context show", "context use work", "context rename work job", "context remove work",
		"context set work", "agent-context", "skills list", "skills show abx-common", "version", "help envs",
	} {
		words := strings.Fields(line)
		_, page, _ := j.run(t, j.home, "", append(slices.Clone(words[:1]), append(slices.DeleteFunc(slices.Clone(words[1:]), func(w string) bool {
			return w == "work" || w == "job" || w == "abx-common" || w == "envs"
		}), "--help")...)...)
		offers := offersOf(page, line)
		if len(offers) == 0 {
			t.Errorf("abx %s offers nothing", line)
		}
		for name, o := range offers {
			values := o.values
			switch {
			case name == "--fields":
				_, _, refusal := j.run(t, j.home, "", append(slices.Clone(words), "--fields=nope")...)
				values = []string{validFields(t, refusal)}
			case len(values) == 0:
				values = []string{map[string]string{"--jq": ".", "--endpoint": "http://127.0.0.1:1", "--cluster-api": "http://127.0.0.1:1", "--api-key": "agbx_0123"}[name]}
			}
			for _, value := range values {
				args := append(slices.Clone(words), name)
				if o.arg != "" {
					args[len(args)-1] += "=" + value
				}
				if problem := j.problem(t, writtenLine{at: "help", words: args}); problem != "" {
					t.Errorf("abx %s: %s", strings.Join(args, " "), problem)
				}
			}
		}
	}
}

// TestAgentContextNamesEveryCommandAndFlag narrows the document to each word of the first position.
func TestAgentContextNamesEveryCommandAndFlag(t *testing.T) {
	t.Parallel()
	for _, word := range append(slices.Clone(registry.Verbs), "whoami", "context", "agent-context", "skills", "completion", "version", "upgrade", "help", "approve", "deny", "promote") {
		r := offline(t, "agent-context", word)
		var c struct {
			Commands []struct {
				Name  string
				Forms []string
				Flags []string
			}
			Flags []struct{ Name string }
		}
		if err := json.Unmarshal([]byte(r.out), &c); err != nil || r.code != 0 || len(c.Commands) == 0 {
			t.Errorf("agent-context %s: exit %d, %v, %s", word, r.code, err, r.err)
		}
		for _, info := range c.Commands {
			for _, name := range info.Flags {
				name, _, _ = strings.Cut(name, " ")
				if !slices.ContainsFunc(c.Flags, func(f struct{ Name string }) bool { return f.Name == name }) {
					t.Errorf("agent-context %s: nothing says what %s is", word, name)
				}
			}
		}
	}
}
