// Package plugintest checks the Claude Code plugin: its manifests, its copy of the skills, and its hook against the real
// abx.
package plugintest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navix.sh/agentbox/skills"
)

const root = "../../"

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// option is a setting that Claude Code asks for. It refuses keys it does not know, so they are all listed here.
type option struct {
	Type, Title, Description string
	Sensitive                bool
}

type manifest struct {
	Name       string
	UserConfig map[string]option
}

func TestManifests(t *testing.T) {
	var market struct {
		Name    string
		Owner   struct{ Name string }
		Plugins []struct{ Name, Source string }
	}
	readJSON(t, ".claude-plugin/marketplace.json", &market)
	if market.Name == "" || market.Owner.Name == "" || len(market.Plugins) != 1 {
		t.Fatalf("marketplace: %+v", market)
	}
	var plugin manifest
	readJSON(t, filepath.Join(market.Plugins[0].Source, ".claude-plugin/plugin.json"), &plugin)
	if plugin.Name != market.Plugins[0].Name {
		t.Errorf("the marketplace calls the plugin %q, the plugin itself %q", market.Plugins[0].Name, plugin.Name)
	}
	if !plugin.UserConfig["api_key"].Sensitive {
		t.Error("api_key is not marked as sensitive")
	}
	script, err := os.ReadFile(filepath.Join(root, "plugin/hooks/context.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range plugin.UserConfig {
		if o.Type != "string" || o.Title == "" || o.Description == "" {
			t.Errorf("setting %s: %+v", name, o)
		}
		if v := "CLAUDE_PLUGIN_OPTION_" + strings.ToUpper(name); !strings.Contains(string(script), v) {
			t.Errorf("the hook does not read %s", v)
		}
	}
}

func TestSkillsAreTheRenderedOnes(t *testing.T) {
	copies, err := filepath.Glob(root + "plugin/skills/*/SKILL.md")
	if err != nil || len(copies) != len(skills.All()) {
		t.Errorf("%d skills in the plugin (%v), %d rendered: go generate ./skills", len(copies), err, len(skills.All()))
	}
	for _, s := range skills.All() {
		raw, err := os.ReadFile(filepath.Join(root, "plugin/skills", s.Name, "SKILL.md"))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(s.Text, string(raw)); diff != "" {
			t.Errorf("%s differs from skills/dist: go generate ./skills\n%s", s.Name, diff)
		}
	}
}
