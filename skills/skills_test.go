package skills

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Limits of the Agent Skills format (agentskills.io), and what agents' readers choke on.
const (
	maxName        = 64
	maxDescription = 1024
	maxLines       = 500
	maxTokens      = 5000
)

func TestFormat(t *testing.T) {
	all := All()
	if len(all) != 9 || all[0].Name != Common {
		t.Fatalf("want nine skills, %s first; got %d", Common, len(all))
	}
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	for _, s := range all {
		front, body, ok := strings.Cut(strings.TrimPrefix(s.Text, "---\n"), "\n---\n")
		if !ok {
			t.Fatalf("%s: no front matter", s.Name)
		}
		var meta struct {
			Name        string            `json:"name"`
			Description string            `json:"description"`
			Metadata    map[string]string `json:"metadata"`
		}
		if err := yaml.UnmarshalStrict([]byte(front), &meta); err != nil {
			t.Errorf("%s: front matter: %v", s.Name, err)
		}
		if meta.Name != s.Name || len(meta.Name) > maxName || !name.MatchString(meta.Name) {
			t.Errorf("%s: name %q", s.Name, meta.Name)
		}
		if n := len(meta.Description); n == 0 || n > maxDescription || meta.Description != s.Description {
			t.Errorf("%s: description of %d characters, read back %q", s.Name, n, s.Description)
		}
		for line := range strings.Lines(front) {
			if _, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(value, `"`) {
				t.Errorf("%s: unquoted scalar %q", s.Name, strings.TrimSpace(line))
			}
		}
		if strings.Contains(body, "\n---\n") {
			t.Errorf("%s: a bare --- in the body breaks some readers", s.Name)
		}
		if strings.Contains(body, "{{") || strings.Contains(body, "<no value>") {
			t.Errorf("%s: an unfilled placeholder", s.Name)
		}
		if n := strings.Count(s.Text, "\n"); n > maxLines {
			t.Errorf("%s: %d lines", s.Name, n)
		}
		// About four characters a token, less where there is code; three is on the safe side.
		if n := len(s.Text) / 3; n > maxTokens {
			t.Errorf("%s: about %d tokens", s.Name, n)
		}
	}
}

// TestRenderedFilesAreCurrent renders again and compares: dist/ is generated and never edited.
func TestRenderedFilesAreCurrent(t *testing.T) {
	out := filepath.Join(t.TempDir(), "dist")
	if raw, err := exec.Command("go", "run", "./render", "-src", "src", "-out", out).CombinedOutput(); err != nil {
		t.Fatalf("render: %v\n%s", err, raw)
	}
	for _, s := range All() {
		raw, err := os.ReadFile(filepath.Join(out, s.Name, "SKILL.md"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.Text, string(raw)); diff != "" {
			t.Errorf("%s is not what its source renders to (go generate ./skills):\n%s", s.Name, diff)
		}
	}
	if rendered, _ := filepath.Glob(filepath.Join(out, "*", "SKILL.md")); len(rendered) != len(All()) {
		t.Errorf("%d sources, %d embedded", len(rendered), len(All()))
	}
}

// TestSkillsReferToOneAnother: a skill that is named exists, and every skill is reachable from abx-common.
func TestSkillsReferToOneAnother(t *testing.T) {
	named := regexp.MustCompile(`\babx-[a-z]+(?:-[a-z]+)*\b`)
	commonText := ""
	for _, s := range All() {
		if s.Name == Common {
			commonText = s.Text
		}
		for _, n := range named.FindAllString(s.Text, -1) {
			if _, ok := Find(n); !ok {
				t.Errorf("%s names %s, which is not a skill", s.Name, n)
			}
		}
	}
	for _, s := range All() {
		if s.Name != Common && !strings.Contains(commonText, s.Name) {
			t.Errorf("%s does not name %s", Common, s.Name)
		}
	}
}
