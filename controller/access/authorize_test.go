package access

import (
	"errors"
	"fmt"
	"testing"
)

var (
	alice = Caller{KeyID: "a", Role: RoleTenant, Team: "red", User: "alice", Namespace: "t-red-alice"}
	bob   = Caller{KeyID: "b", Role: RoleTenant, Team: "blue", User: "bob", Namespace: "t-blue-bob"}
	root  = Caller{KeyID: "r", Role: RoleAdmin, Team: BootstrapTeam, User: BootstrapUser, Namespace: BootstrapNamespace}
)

func agentOf(c Caller) Caller { c.Agent = true; return c }

var (
	allVerbs = []Verb{VerbGet, VerbList, VerbCreate, VerbUpdate, VerbDelete, VerbUse}
	allKinds = []Kind{
		KindSandbox, KindEnv, KindPool, KindGroup, KindTemplate, KindAPIKey, KindApproval, KindGrant, KindVolume,
		KindQuota, KindCatalogue, KindAdmin,
	}
)

func objectOf(k Kind, c Caller) Object {
	return Object{Kind: k, Namespace: c.Namespace, Name: "it", Team: c.Team, User: c.User}
}

// TestAuthorizeMatrix goes through every verb, every kind and every sort of caller, and says what must come out from
// rules that are stated here once more, not from the table under test.
func TestAuthorizeMatrix(t *testing.T) {
	callers := map[string]Caller{
		"nobody": {}, "owner": alice, "owner's agent": agentOf(alice), "other tenant": bob, "admin": root,
		"unknown role": {KeyID: "x", Role: "superuser", Team: "red", User: "alice", Namespace: "t-red-alice"},
	}
	public := map[Kind]bool{KindCatalogue: true, KindTemplate: true}
	for who, c := range callers {
		for _, k := range allKinds {
			for _, v := range allVerbs {
				t.Run(fmt.Sprintf("%s %s %s", who, v, k), func(t *testing.T) {
					o := objectOf(k, alice)
					err := Authorize(c, v, o)
					_, exists := rights[k][v]
					tenants := rights[k][v]
					op, isGated := gated[act{v, k}]
					switch {
					case who == "nobody":
						wantIs(t, err, ErrUnauthenticated)
					case who == "unknown role", !exists:
						wantIs(t, err, ErrForbidden)
					case who == "admin":
						wantIs(t, err, nil)
					case !tenants:
						wantIs(t, err, ErrForbidden)
					case who == "other tenant" && !public[k]:
						wantIs(t, err, ErrNotFound)
					case who == "owner's agent" && isGated && op.Never:
						var never *ForbiddenForAgentError
						if !errors.As(err, &never) || never.Operation.ID != op.ID {
							t.Fatalf("got %v, want ForbiddenForAgentError %s", err, op.ID)
						}
						wantIs(t, err, ErrForbidden)
					case who == "owner's agent" && isGated:
						var wait *ApprovalRequiredError
						if !errors.As(err, &wait) || wait.Operation.ID != op.ID {
							t.Fatalf("got %v, want ApprovalRequiredError %s", err, op.ID)
						}
						wantIs(t, err, ErrForbidden)
					default:
						wantIs(t, err, nil)
					}
				})
			}
		}
	}
}

func wantIs(t *testing.T, got, want error) {
	t.Helper()
	if want == nil {
		if got != nil {
			t.Fatalf("got %v, want it allowed", got)
		}
		return
	}
	if !errors.Is(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestAuthorizeDetails(t *testing.T) {
	mate := alice
	mate.User, mate.KeyID = "anna", "m"
	noOwner := Object{Kind: KindEnv, Namespace: alice.Namespace}
	tests := []struct {
		name string
		c    Caller
		v    Verb
		o    Object
		want error
	}{
		{"unlabelled object in the own namespace", alice, VerbGet, noOwner, nil},
		{"unlabelled object in another namespace", bob, VerbGet, noOwner, ErrNotFound},
		{"object without a namespace", alice, VerbGet, Object{Kind: KindEnv}, ErrNotFound},
		{"teammate's object in a shared namespace", mate, VerbDelete, objectOf(KindEnv, alice), ErrNotFound},
		{"own team and user in a foreign namespace", alice, VerbUse, Object{Kind: KindSandbox, Namespace: "else", Team: "red", User: "alice"}, ErrNotFound},
		{"key without an owner", alice, VerbDelete, Object{Kind: KindAPIKey, Namespace: alice.Namespace}, ErrNotFound},
		{"template for another team", alice, VerbUse, Object{Kind: KindTemplate, Audience: []Audience{{Team: "blue"}}}, ErrNotFound},
		{"template for the team, other user", alice, VerbUse, Object{Kind: KindTemplate, Audience: []Audience{{Team: "red", Users: []string{"anna"}}}}, ErrNotFound},
		{"template, second rule matches", alice, VerbUse, Object{Kind: KindTemplate, Audience: []Audience{{Team: "blue"}, {Users: []string{"alice"}}}}, nil},
		{"team quota", mate, VerbUse, Object{Kind: KindQuota, Team: "red"}, nil},
		{"other team's quota", bob, VerbUse, Object{Kind: KindQuota, Team: "red"}, ErrNotFound},
		{"unknown kind, admin", root, VerbGet, Object{Kind: "secret"}, ErrForbidden},
		{"unknown verb, admin", root, "escalate", objectOf(KindEnv, alice), ErrForbidden},
		{"agent drives a sandbox", agentOf(alice), VerbCreate, objectOf(KindSandbox, alice), nil},
		{"admin in agent mode administers nothing", agentOf(root), VerbGet, Object{Kind: KindAdmin}, ErrForbidden},
		{"foreign object before the gate", agentOf(bob), VerbDelete, objectOf(KindEnv, alice), ErrNotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantIs(t, Authorize(tt.c, tt.v, tt.o), tt.want) })
	}
	platform := objectOf(KindSandbox, alice)
	platform.Operation = OpSandboxExec
	var wait *ApprovalRequiredError
	if err := Authorize(agentOf(alice), VerbUse, platform); !errors.As(err, &wait) {
		t.Errorf("exec through the platform API by an agent: got %v, want ApprovalRequiredError", err)
	}
}

// FuzzAuthorize holds what must be true whatever comes in: nobody is allowed nothing, and a tenant never gets through
// to an object with somebody else's name on it.
func FuzzAuthorize(f *testing.F) {
	f.Add("k", "tenant", false, "red", "alice", "ns", "get", "env", "ns", "red", "alice", "")
	f.Add("", "admin", false, "", "", "", "delete", "env", "ns", "red", "alice", "")
	f.Add("k", "tenant", true, "red", "alice", "ns", "use", "sandbox", "ns", "red", "alice", OpSandboxExec)
	f.Add("k", "tenant", false, "", "", "", "list", "api-key", "", "", "", "")
	f.Fuzz(func(t *testing.T, id, role string, agent bool, team, user, ns, verb, kind, oNS, oTeam, oUser, op string) {
		c := Caller{KeyID: id, Role: Role(role), Agent: agent, Team: team, User: user, Namespace: ns}
		o := Object{Kind: Kind(kind), Namespace: oNS, Team: oTeam, User: oUser, Operation: op}
		err := Authorize(c, Verb(verb), o)
		if err != nil {
			return
		}
		if id == "" || (c.Role != RoleAdmin && c.Role != RoleTenant) {
			t.Fatalf("%+v was allowed to %s %+v", c, verb, o)
		}
		if c.Role == RoleAdmin {
			return
		}
		if o.Kind == KindAdmin {
			t.Fatalf("a tenant was allowed to %s an admin object", verb)
		}
		foreign := (oTeam != "" && oTeam != team) || (oUser != "" && oUser != user)
		if foreign && o.Kind != KindCatalogue && o.Kind != KindTemplate {
			t.Fatalf("%+v was allowed to %s %+v", c, verb, o)
		}
	})
}
