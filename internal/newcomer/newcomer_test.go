package newcomer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navix.sh/agentbox/internal/markdown"
	"navix.sh/agentbox/internal/testplatform"
)

func TestNewcomer(t *testing.T) {
	p := testplatform.Start(t)
	person := newAgent(t, p.Bin)
	person.env = []string{"AGENTBOX_ENDPOINT=" + p.Endpoint(), "AGENTBOX_API_KEY=" + p.Client["AGENTBOX_API_KEY"]}
	var issued struct{ APIKey string }
	person.exec(`{"mode":"agent","description":"newcomer"}`, "abx", "create", "api-keys", "-f", "-", "--json").exits(0).json(&issued)

	a := newAgent(t, p.Bin)
	skill, err := os.ReadFile("../../skills/dist/abx-common/SKILL.md")
	if err != nil {
		t.Fatal(err)
	}
	a.read.Write(skill)
	a.read.WriteString("The platform is at " + p.Endpoint() + ".\n") // all that the person says

	// What is there? The one document.
	var catalogue struct {
		Resources []struct{ Name string }
		Exits     []struct{ Code int }
	}
	a.run("abx agent-context", nil).exits(0).json(&catalogue)
	if len(catalogue.Resources) == 0 {
		t.Fatal("agent-context names no resources")
	}

	// The first command that connects fails, and says how to go on.
	first := a.run("abx envs", nil, "--json").exits(9).failure()
	if first.Code != "NOT_CONFIGURED" || len(first.Hint) == 0 {
		t.Fatalf("%+v", first)
	}
	a.step("abx context set {name} --endpoint {address} --api-key-stdin")
	a.exec(issued.APIKey, "abx", "context", "set", "local", "--endpoint", p.Endpoint(), "--api-key-stdin").exits(0)
	if who := a.run("abx whoami", nil).exits(0); !strings.Contains(who.out, "agent") {
		t.Errorf("whoami: %s", who.out)
	}

	// A slip of the pen is put right by the error.
	slip := a.exec("", "abx", "env", "--json").exits(2).failure()
	if slip.Suggestion != "envs" {
		t.Errorf("`abx env` suggests %q", slip.Suggestion)
	}

	var envs struct{ Items []struct{ Name string } }
	a.run("abx envs", nil, "--json").exits(0).json(&envs)
	if len(envs.Items) != 1 {
		t.Fatalf("%+v", envs)
	}
	env := envs.Items[0].Name

	// A sandbox, exactly as the env's own documentation says.
	docs := a.run("abx envs {env} docs", values{"env": env}).exits(0)
	t.Run("sandbox", func(t *testing.T) { a.sandbox(t, docs.out, issued.APIKey) })
	var ended struct {
		Items []struct{ SandboxID, Status, EnvName string }
	}
	a.run("abx sandboxes", nil, "--json").exits(0).json(&ended)
	for _, s := range ended.Items {
		if s.EnvName != env || s.Status == "Running" {
			t.Errorf("a sandbox was left: %+v", s)
		}
	}

	// A larger pool: the write waits for a person.
	var pools struct {
		Items []struct {
			Name            string
			DesiredReplicas int
		}
	}
	a.run("abx envs {env} pools", values{"env": env}, "--json").exits(0).json(&pools)
	pool := values{"env": env, "pool": pools.Items[0].Name, "n": "5"}
	const scale = "abx scale envs {env} pools {pool} --replicas {n}"
	held := a.run(scale, pool, "--json").exits(8).failure()
	if held.Code != "APPROVAL_REQUIRED" || held.Approval.ApprovalID == "" {
		t.Fatalf("%+v", held)
	}
	request := values{"id": held.Approval.ApprovalID}
	if refused := a.run("abx approve approvals {id}", request, "--json").exits(3).failure(); refused.Code != "FORBIDDEN_FOR_AGENT" {
		t.Errorf("deciding its own request: %+v", refused)
	}
	// The person gets the command from the agent, and the agent from the error.
	if !slices.ContainsFunc(held.Hint, func(h string) bool { return strings.Contains(h, held.Approval.ApprovalID) }) {
		t.Errorf("the hints do not say how to decide: %q", held.Hint)
	}
	person.exec("", "abx", "approve", "approvals", held.Approval.ApprovalID).exits(0)
	a.run(scale, pool, "--wait").exits(0)
	var scaled struct{ Spec struct{ Replicas int } }
	a.run("abx envs {env} pools {pool}", pool, "--json").exits(0).json(&scaled)
	if scaled.Spec.Replicas != 5 {
		t.Errorf("the pool has %d replicas", scaled.Spec.Replicas)
	}
}

// step only asserts that a command was named; the caller runs it, because it reads standard input.
func (a *agent) step(template string) {
	a.t.Helper()
	a.named(template, a.read.String())
}

// sandbox runs the JavaScript of an env's documentation with the published package.
func (a *agent) sandbox(t *testing.T, docs, key string) {
	module := filepath.Join(testplatform.E2BPackages(t), "e2b-2.51")
	modules := filepath.Join(a.home, "node_modules")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(module, filepath.Join(modules, "e2b")); err != nil {
		t.Fatal(err)
	}
	settings, program := "", ""
	for _, b := range markdown.Parse("docs", []byte(docs)).Blocks {
		switch b.Language {
		case "sh":
			settings += b.Text
		case "js":
			program += b.Text
		}
	}
	if settings == "" || program == "" {
		t.Fatalf("the documentation of the env has no settings or no program:\n%s", docs)
	}
	if err := os.WriteFile(filepath.Join(a.home, "first.mjs"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	a.env = append(a.env, "AGBX_API_KEY="+key)
	if out := a.exec(settings+"node first.mjs\n", "sh", "-eu").exits(0).out; out != "hello\n\n" && out != "hello\n" {
		t.Errorf("the first program prints %q", out)
	}
}
