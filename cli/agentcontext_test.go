package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/registry"
)

// Budgets of the document in bytes: it is read into a model's context.
const (
	wholeBudget    = 60_000
	resourceBudget = 9_000
)

func TestAgentContextFitsItsBudgetAndSchema(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	schema, err := compiler.Compile(filepath.Join("..", "docs", "agent-context.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(budget int, args ...string) {
		r := offline(t, append([]string{"agent-context"}, args...)...)
		if r.code != 0 || len(r.out) > budget {
			t.Errorf("agent-context %v: exit %d, %d bytes of at most %d", args, r.code, len(r.out), budget)
		}
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(r.out))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(document); err != nil {
			t.Errorf("agent-context %v: %v", args, err)
		}
	}
	check(wholeBudget)
	for _, r := range registry.Default().Resources {
		check(resourceBudget, r.Plural)
	}
	if r := offline(t, "agent-context", "env", "--json"); r.code != 2 || errorOf(t, r.err).Suggestion != "envs" {
		t.Errorf("unknown resource: %+v", r)
	}
}

// TestAgentContextIsComplete checks that everything the binary takes is in the document.
func TestAgentContextIsComplete(t *testing.T) {
	t.Parallel()
	r := offline(t, "agent-context")
	var c struct {
		Commands  []struct{ Name string }
		Flags     []struct{ Name string }
		ExitCodes []struct {
			Code       int
			ErrorCodes []string
		}
		Resources []struct {
			Plural string
			Writes map[string]struct{ Body string }
			Row    string
			Item   string
		}
		Schemas map[string]map[string]string
	}
	if err := json.Unmarshal([]byte(r.out), &c); err != nil {
		t.Fatal(err)
	}
	text := r.out
	for _, cmd := range cli.NewApp().Command().Commands() {
		if registry.Default().Find(cmd.Name()) == nil && !strings.Contains(text, `{"name":"`+cmd.Name()) {
			t.Errorf("the command %s is missing", cmd.Name())
		}
	}
	if len(c.ExitCodes) != len(clierr.Exits) {
		t.Errorf("%d exit codes, want %d", len(c.ExitCodes), len(clierr.Exits))
	}
	if len(c.Resources) != len(registry.Default().Resources) {
		t.Errorf("%d resources", len(c.Resources))
	}
	for _, res := range c.Resources {
		for _, name := range []string{res.Row, res.Item} {
			if name != "" && c.Schemas[name] == nil {
				t.Errorf("%s refers to the schema %s, which is missing", res.Plural, name)
			}
		}
		for verb, w := range res.Writes {
			if w.Body != "" && c.Schemas[w.Body] == nil {
				t.Errorf("%s %s: the body %s is missing", verb, res.Plural, w.Body)
			}
		}
	}
	for name, fields := range c.Schemas {
		if same := fields["="]; same != "" && len(c.Schemas[same]) < 2 {
			t.Errorf("%s refers to %s, which is no shape", name, same)
		}
	}
}

// TestErrorCodesAreTheWholeSet compares the error codes of agent-context with those that the registry and the server have.
func TestErrorCodesAreTheWholeSet(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, e := range clierr.Exits {
		listed = append(listed, e.Examples...)
	}
	for path, constant := range map[string]string{
		"../controller/native/errors.go": `(?m)^\tcode\w+ +code += "([A-Z_]+)"`,
		"../controller/claim/errors.go":  `(?m)^\tCode(?:Pull|Start)Failed +Code = "([A-Z_]+)"`, // the others are mapped to codes of the API
		"../registry/address.go":         `(?m)^\tErr\w+ += "([A-Z_]+)"`,
		"clierr/code.go":                 `(?m)^\t[A-Z]\w+ += "([A-Z_]+)"`,
	} {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(constant).FindAllSubmatch(source, -1)
		if len(found) < 2 {
			t.Errorf("%s: only %d codes found", path, len(found))
		}
		for _, m := range found {
			if !slices.Contains(listed, string(m[1])) {
				t.Errorf("no exit code lists %s of %s", m[1], path)
			}
		}
	}
}

// TestFlagsAreTheReservedOnes compares the flags of the tree with the list that keeps
// columns and parameters from taking their names.
func TestFlagsAreTheReservedOnes(t *testing.T) {
	t.Parallel()
	var have []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(have, f.Name) {
				have = append(have, f.Name)
			}
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(cli.NewApp().Command())
	reserved := slices.Clone(registry.Flags)
	for _, r := range registry.Default().Resources {
		for _, v := range r.Views {
			for _, o := range v.Options { // these come from the document, which checks them itself
				reserved = append(reserved, o.Flag)
			}
		}
		for _, act := range r.Actions {
			for _, f := range act.Flags {
				reserved = append(reserved, f.Name)
			}
		}
	}
	for _, name := range have {
		if !slices.Contains(reserved, name) {
			t.Errorf("the flag --%s is not in registry.Flags", name)
		}
	}
	for _, name := range registry.Flags {
		if name != "yes" && !slices.Contains(have, name) { // yes is reserved so that nobody means something else by it
			t.Errorf("registry.Flags has --%s, which no command takes", name)
		}
	}
}

// TestCommandsAreTheReservedOnes compares the words of the first position.
func TestCommandsAreTheReservedOnes(t *testing.T) {
	t.Parallel()
	ix := registry.Default()
	for _, cmd := range cli.NewApp().Command().Commands() {
		for _, word := range append([]string{cmd.Name()}, cmd.Aliases...) {
			known := ix.Find(word) != nil || slices.Contains(registry.Verbs, word) || slices.Contains(ix.ActionNames(), word) || slices.Contains(registry.Commands, word)
			if !known {
				t.Errorf("the command %s is not reserved in the registry", word)
			}
		}
	}
}
