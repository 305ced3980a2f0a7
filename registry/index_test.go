package registry_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"navix.sh/agentbox/registry"
)

func TestOrderOfResources(t *testing.T) {
	var got []string
	for _, r := range registry.Default().Resources {
		got = append(got, r.Plural)
	}
	want := strings.Fields(`clusters envs pools scaling-groups events sandboxes templates instancetypes quotas volumes
		api-keys admin-api-keys approvals grants admin-teams users admin-namespaces statistics admin-statistics admin-templates`)
	if !slices.Equal(got, want) {
		t.Errorf("resources = %v, want %v", got, want)
	}
	if n := len(registry.Default().Roots()); n != 16 {
		t.Errorf("%d roots, want 16", n)
	}
}

// TestReferences: every name in the index leads somewhere, and patterns compile.
func TestReferences(t *testing.T) {
	ix := registry.Default()
	var walk func(where string, s *registry.Schema)
	walk = func(where string, s *registry.Schema) {
		if s.Ref != "" && ix.Schema(s.Ref) == nil {
			t.Errorf("%s refers to %s, which is not there", where, s.Ref)
		}
		if _, err := regexp.Compile(s.Pattern); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		if s.Elem != nil {
			walk(where+"[]", s.Elem)
		}
		for i := range s.Fields {
			walk(where+"."+s.Fields[i].Name, &s.Fields[i].Schema)
		}
		for i := range s.OneOf {
			walk(where+"|", &s.OneOf[i])
		}
	}
	for i := range ix.Schemas {
		walk(ix.Schemas[i].Name, &ix.Schemas[i])
	}
	for _, op := range ix.Operations {
		if op.Request != nil && ix.Schema(op.Request.Schema) == nil {
			t.Errorf("%s: body %s is not there", op.ID, op.Request.Schema)
		}
		for _, r := range op.Responses {
			if r.Schema != "" && ix.Schema(r.Schema) == nil {
				t.Errorf("%s: answer %s is not there", op.ID, r.Schema)
			}
		}
	}
}

// TestFixedFields holds the bodies of updates to the fields that are fixed at create.
func TestFixedFields(t *testing.T) {
	ix := registry.Default()
	for component, want := range map[string]string{
		"UpdateSandboxEnvRequest":          "templateRef mode labels annotations",
		"UpdateEnvSandboxPoolRequest":      "instanceType multiplier inlineResources labels annotations",
		"UpdateEnvAutoscalingGroupRequest": "",
	} {
		var got []string
		for _, f := range ix.Schema(component).Fields {
			if f.Fixed {
				got = append(got, f.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: fixed %v, want %s", component, got, want)
		}
		if !ix.Schema(component).Closed {
			t.Errorf("%s takes unknown keys", component)
		}
	}
}

// TestAgentRules holds the gates to those of the approval contract.
func TestAgentRules(t *testing.T) {
	gates := map[string]string{}
	var forbidden []string
	for _, op := range registry.Default().Operations {
		if op.Approval != "" {
			star := ""
			if op.ApprovalOnce {
				star = "*"
			}
			gates[op.ID] = op.Approval + star
		}
		if op.AgentForbidden != "" {
			forbidden = append(forbidden, op.ID)
		}
	}
	want := map[string]string{
		"CreateSandbox": "sandbox.create", "DeleteSandbox": "sandbox.delete*", "SetSandboxTimeout": "sandbox.update",
		"ExecSandboxCommand": "sandbox.exec", "CreateSandboxExecToken": "sandbox.execToken*",
		"CreateSandboxEnv": "env.create", "UpdateSandboxEnv": "env.update", "DeleteSandboxEnv": "env.delete*",
		"CreateEnvSandboxPool": "pool.create", "UpdateEnvSandboxPool": "pool.update", "DeleteEnvSandboxPool": "pool.delete*",
		"UpdateEnvAutoscalingGroup": "autoscaling.update", "DeleteEnvAutoscalingGroup": "autoscaling.delete*",
		"SelfDeleteAPIKey": "apikey.delete*",
	}
	for id, gate := range want {
		if gates[id] != gate {
			t.Errorf("%s is gated by %q, want %q", id, gates[id], gate)
		}
	}
	if len(gates) != len(want) {
		t.Errorf("gates = %v, want %d of them", gates, len(want))
	}
	if want := []string{"CreateAPIKey", "DecideApproval", "PromoteAPIKey", "SelfCreateAPIKey"}; !slices.Equal(forbidden, want) {
		t.Errorf("forbidden to agents: %v, want %v", forbidden, want)
	}
}

func TestLookups(t *testing.T) {
	ix := registry.Default()
	if ix.Find("env") != nil || ix.ByKind("env") != ix.Find("envs") || ix.Child(ix.Find("envs"), "pools") == nil ||
		ix.Child(ix.Find("envs"), "users") != nil || ix.Child(nil, "pools") != nil {
		t.Error("a resource is found where it is not, or not where it is")
	}
	if ix.Operation("Nope") != nil || ix.Schema("Nope") != nil {
		t.Error("something is found that is not there")
	}
	for i := range ix.Operations {
		if ix.Operation(ix.Operations[i].ID) != &ix.Operations[i] {
			t.Errorf("%s is not found", ix.Operations[i].ID)
		}
	}
	for i := range ix.Schemas {
		if ix.Schema(ix.Schemas[i].Name) != &ix.Schemas[i] {
			t.Errorf("%s is not found", ix.Schemas[i].Name)
		}
	}
	envs := ix.Find("envs")
	if envs.Verb("create") == nil || envs.Verb("scale") != nil || envs.View("docs") == nil || envs.Column("mode") == nil || envs.Filter("mode") == nil || envs.Action("approve") != nil {
		t.Error("envs lack something, or have too much")
	}
	if got := ix.Operation("CreateEnvSandboxPool").Success(); got == nil || got.Status != 202 {
		t.Errorf("a pool is created with %+v, want 202", got)
	}
	if got := ix.Operation("UpdateSandboxEnv").Success(); got == nil || got.Schema != "SandboxEnvEnvelope" || !got.DryRun {
		t.Errorf("an env is updated with %+v", got)
	}
	if got := ix.Form(ix.Find("pools")); got != "envs <env> pools" {
		t.Errorf("form of pools = %q", got)
	}
}

func TestReservedWordsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range registry.Reserved() {
		if seen[w] {
			t.Errorf("%q is reserved twice", w)
		}
		seen[w] = true
	}
	for _, w := range []string{"apply", "patch", "post", "get", "list", "describe", "rm", "edit"} {
		if registry.Retired(w) == nil {
			t.Errorf("%q has no advice", w)
		}
	}
	if registry.Retired("envs") != nil {
		t.Error("envs are retired")
	}
}

func TestSuggest(t *testing.T) {
	names := []string{"envs", "sandboxes", "templates", "instancetypes", "quotas", "api-keys", "admin-api-keys"}
	for word, want := range map[string]string{
		"env": "envs", "ensv": "envs", "ENVS": "envs", "sandboxs": "sandboxes", "sndboxes": "sandboxes",
		"template": "templates", "inst": "instancetypes", "a": "", "": "", "xyz": "", "apikeys": "api-keys", "quota": "quotas",
		strings.Repeat("e", 10000): "",
	} {
		if got := registry.Suggest(word, names); got != want {
			t.Errorf("Suggest(%.20q) = %q, want %q", word, got, want)
		}
	}
}
