package registry_test

import (
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"navix.sh/agentbox/registry"
)

func TestParseAddress(t *testing.T) {
	ix := registry.Default()
	for _, tt := range []struct {
		words      string
		resource   string
		ids        []string
		view       string
		collection bool
		console    string
	}{
		{words: "envs", resource: "envs", collection: true, console: "clusters/c1/envs"},
		{words: "envs demo", resource: "envs", ids: []string{"demo"}, console: "clusters/c1/envs/demo"},
		{words: "envs apply", resource: "envs", ids: []string{"apply"}, console: "clusters/c1/envs/apply"},
		{words: "envs pools", resource: "envs", ids: []string{"pools"}, console: "clusters/c1/envs/pools"},
		{words: "envs demo docs", resource: "envs", ids: []string{"demo"}, view: "docs", console: "clusters/c1/envs/demo/docs"},
		{words: "envs demo pools", resource: "pools", ids: []string{"demo"}, collection: true, console: "clusters/c1/envs/demo/pools"},
		{words: "envs demo pools p", resource: "pools", ids: []string{"demo", "p"}, console: "clusters/c1/envs/demo/pools/p"},
		{words: "envs demo pools p metrics", resource: "pools", ids: []string{"demo", "p"}, view: "metrics", console: "clusters/c1/envs/demo/pools/p/metrics"},
		{words: "envs demo events", resource: "events", ids: []string{"demo"}, collection: true},
		{words: "sandboxes i1 logs", resource: "sandboxes", ids: []string{"i1"}, view: "logs", console: "clusters/c1/sandboxes/i1/logs"},
		{words: "admin-teams a/b users", resource: "users", ids: []string{"a/b"}, collection: true},
		{words: "clusters", resource: "clusters", collection: true},
	} {
		a, problem := ix.ParseAddress(strings.Fields(tt.words))
		if problem != nil {
			t.Errorf("%q: %v", tt.words, problem)
			continue
		}
		view := ""
		if a.View != nil {
			view = a.View.Name
		}
		if a.Resource.Plural != tt.resource || !slices.Equal(a.IDs, tt.ids) || view != tt.view || a.Collection() != tt.collection {
			t.Errorf("%q = %s %v %q collection=%v", tt.words, a.Resource.Plural, a.IDs, view, a.Collection())
		}
		if a.String() != tt.words {
			t.Errorf("%q reads back as %q", tt.words, a)
		}
		if got := a.ConsolePath("c1"); got != tt.console {
			t.Errorf("%q: console page %q, want %q", tt.words, got, tt.console)
		}
	}
}

func TestParseAddressProblems(t *testing.T) {
	ix := registry.Default()
	for _, tt := range []struct {
		words      []string
		code       string
		suggestion string
		hint       string
	}{
		{words: nil, code: registry.ErrNoAddress},
		{words: []string{"env"}, code: registry.ErrUnknownResource, suggestion: "envs"},
		{words: []string{"sandboxs"}, code: registry.ErrUnknownResource, suggestion: "sandboxes"},
		{words: []string{"sandbox"}, code: registry.ErrUnknownResource, suggestion: "sandboxes"},
		{words: []string{"zebra"}, code: registry.ErrUnknownResource},
		{words: []string{""}, code: registry.ErrUnknownResource},
		{words: []string{"get", "envs"}, code: registry.ErrUnknownResource, hint: "reads have no verb"},
		{words: []string{"apply"}, code: registry.ErrUnknownResource, hint: "abx create"},
		{words: []string{"pools"}, code: registry.ErrNotRoot, hint: "abx envs <env> pools"},
		{words: []string{"pools", "p1"}, code: registry.ErrNotRoot, hint: "abx envs <env> pools p1"},
		{words: []string{"pool"}, code: registry.ErrUnknownResource, suggestion: "pools", hint: "abx envs <env> pools"},
		{words: []string{"envs", ""}, code: registry.ErrInvalidID},
		{words: []string{"envs", "  "}, code: registry.ErrInvalidID},
		{words: []string{"envs", ".."}, code: registry.ErrInvalidID},
		{words: []string{"envs", "."}, code: registry.ErrInvalidID},
		{words: []string{"envs", "a\x1b[2J"}, code: registry.ErrInvalidID},
		{words: []string{"envs", "", "pools"}, code: registry.ErrInvalidID},
		{words: []string{"envs", "demo", "pool"}, code: registry.ErrUnknownChild, suggestion: "pools", hint: "abx envs demo pools"},
		{words: []string{"envs", "demo", "doc"}, code: registry.ErrUnknownChild, suggestion: "docs"},
		{words: []string{"envs", "demo", ""}, code: registry.ErrUnknownChild},
		{words: []string{"envs", "demo", "docs", "x"}, code: registry.ErrTooManyWords, hint: "abx envs demo docs"},
		{words: []string{"envs", "demo", "pools", "p", "metrics", "x"}, code: registry.ErrTooManyWords},
		{words: []string{"envs", "demo", "pools", "p", "events"}, code: registry.ErrTooManyWords},
		{words: []string{"templates", "e2b", "docs"}, code: registry.ErrTooManyWords},
		{words: []string{"templates", "e2b", "delete"}, code: registry.ErrTooManyWords},
	} {
		_, problem := ix.ParseAddress(tt.words)
		if problem == nil {
			t.Errorf("%q parses", tt.words)
			continue
		}
		if problem.Code != tt.code || problem.Suggestion != tt.suggestion {
			t.Errorf("%q: code %s suggestion %q (%s), want %s %q", tt.words, problem.Code, problem.Suggestion, problem, tt.code, tt.suggestion)
		}
		if tt.hint != "" && !strings.Contains(strings.Join(problem.Hints, "\n"), tt.hint) {
			t.Errorf("%q: hints %q lack %q", tt.words, problem.Hints, tt.hint)
		}
	}
}

func TestReadAndWrite(t *testing.T) {
	ix := registry.Default()
	for _, tt := range []struct {
		verb, words string
		operation   string // or
		code        string
		path        string
	}{
		{words: "envs", operation: "ListSandboxEnvs", path: "/envs"},
		{words: "envs a%2Fb", operation: "GetSandboxEnv", path: "/envs/a%252Fb"},
		{words: "envs demo docs", operation: "GetSandboxEnv", path: "/envs/demo"},
		{words: "envs demo pools p?q", operation: "GetEnvSandboxPool", path: "/envs/demo/sandboxpools/p%3Fq"},
		{words: "sandboxes i1 logs", operation: "GetSandboxLogs", path: "/sandboxes/i1/logs"},
		{words: "grants", operation: "ListApprovals", path: "/approvals"},
		{words: "quotas q", code: registry.ErrNotReadable},
		{words: "api-keys k", code: registry.ErrNotReadable},
		{words: "admin-teams research", code: registry.ErrNotReadable},
		{verb: "create", words: "envs", operation: "CreateSandboxEnv", path: "/envs"},
		{verb: "create", words: "envs demo", code: registry.ErrWrongTarget},
		{verb: "create", words: "envs demo pools", operation: "CreateEnvSandboxPool", path: "/envs/demo/sandboxpools"},
		{verb: "create", words: "envs demo scaling-groups", code: registry.ErrUnsupportedVerb},
		{verb: "update", words: "envs", code: registry.ErrMissingID},
		{verb: "delete", words: "envs delete", operation: "DeleteSandboxEnv", path: "/envs/delete"},
		{verb: "delete", words: "envs demo docs", code: registry.ErrWrongTarget},
		{verb: "delete", words: "sandboxes i1", code: registry.ErrUnsupportedVerb},
		{verb: "delete", words: "grants grn_1", operation: "RevokeApprovalGrant", path: "/approvals/grants/grn_1"},
		{verb: "scale", words: "envs demo pools p", operation: "UpdateEnvSandboxPool", path: "/envs/demo/sandboxpools/p"},
		{verb: "scale", words: "envs demo", code: registry.ErrUnsupportedVerb},
		{verb: "approve", words: "approvals apr_1", operation: "DecideApproval", path: "/approvals/apr_1/decision"},
		{verb: "approve", words: "approvals", code: registry.ErrMissingID},
		{verb: "approve", words: "envs demo", code: registry.ErrUnsupportedVerb},
		{verb: "promote", words: "admin-api-keys k", operation: "PromoteAPIKey", path: "/admin/api-keys/k/promote"},
	} {
		a, problem := ix.ParseAddress(strings.Fields(tt.words))
		if problem != nil {
			t.Errorf("%q: %v", tt.words, problem)
			continue
		}
		var op *registry.Operation
		if tt.verb == "" {
			op, problem = ix.Read(a)
		} else {
			op, problem = ix.Write(tt.verb, a)
		}
		switch {
		case tt.code != "":
			if problem == nil || problem.Code != tt.code || len(problem.Hints)+len(problem.Valid) == 0 {
				t.Errorf("%s %q = %v %+v, want %s with advice", tt.verb, tt.words, op, problem, tt.code)
			}
		case problem != nil || op == nil || op.ID != tt.operation:
			t.Errorf("%s %q = %v %v, want %s", tt.verb, tt.words, op, problem, tt.operation)
		default:
			if path, err := a.URLPath(op); err != nil || path != tt.path {
				t.Errorf("%s %q goes to %q %v, want %q", tt.verb, tt.words, path, err, tt.path)
			}
		}
	}
	a, _ := ix.ParseAddress([]string{"envs", "demo", "metrics"})
	if op, problem := ix.Read(a); op != nil || problem != nil {
		t.Errorf("a view of the console = %v %v, want neither operation nor problem", op, problem)
	}
}

// FuzzParseAddress: words are either an address that reads back as the same words
// and stays inside its own path, or a problem with a message.
func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"envs", "envs demo", "envs demo pools p metrics", "pools x", "envs  docs", "envs .. pools", "get envs", "envs a/b", "envs %2e%2e", "sandboxes \x00 logs", "Envs ÄÖÜ 日本"} {
		f.Add(seed)
	}
	ix := registry.Default()
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		a, problem := ix.ParseAddress(words)
		if problem != nil {
			if problem.Code == "" || problem.Message == "" {
				t.Fatalf("%q: empty problem %+v", words, problem)
			}
			if problem.Suggestion != "" && problem.Suggestion == problem.Word {
				t.Fatalf("%q: suggests the word that it refuses", words)
			}
			return
		}
		if !reflect.DeepEqual(a.Words(), words) {
			t.Fatalf("%q reads back as %q", words, a.Words())
		}
		op, unreadable := ix.Read(a)
		if unreadable != nil || op == nil {
			return
		}
		path, err := a.URLPath(op)
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		joined, err := url.JoinPath("https://host/v1", path)
		if err != nil || joined != "https://host/v1"+path {
			t.Fatalf("%q: path %q does not survive cleaning: %q %v", words, path, joined, err)
		}
		if strings.Count(path, "/") != strings.Count(op.Path, "/") {
			t.Fatalf("%q: path %q has other segments than %q", words, path, op.Path)
		}
	})
}
