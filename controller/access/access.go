// Package access decides who may do what: it turns a presented key into a Caller and holds Authorize, the only
// authorisation function of the controller. Every route of every surface, the data plane included, asks it.
package access

import "context"

// Role is what a key was issued for.
type Role string

// The roles a key can carry.
const (
	RoleTenant Role = "tenant"
	RoleAdmin  Role = "admin"
)

// Caller is an authenticated key. The zero value is nobody and is allowed nothing.
type Caller struct {
	// KeyID names the key (never the secret): the first 16 hex digits of its SHA-256.
	KeyID string
	Role  Role
	// Agent is true for a key in agent mode: platform writes wait for a person's approval.
	Agent bool
	Team  string
	User  string
	// Namespace is the Kubernetes namespace that holds the caller's objects.
	Namespace string
}

// Verb is what the caller wants to do with an object.
type Verb string

// The verbs of the platform. Use covers the data plane: connecting to a port or envd of a sandbox.
const (
	VerbGet    Verb = "get"
	VerbList   Verb = "list"
	VerbCreate Verb = "create"
	VerbUpdate Verb = "update"
	VerbDelete Verb = "delete"
	VerbUse    Verb = "use"
)

// Kind names the type of the object in question.
type Kind string

// The kinds Authorize knows. An unknown kind is refused.
const (
	KindSandbox   Kind = "sandbox"
	KindEnv       Kind = "env"
	KindPool      Kind = "pool"
	KindGroup     Kind = "scaling-group"
	KindTemplate  Kind = "template"
	KindAPIKey    Kind = "api-key"
	KindApproval  Kind = "approval"
	KindGrant     Kind = "grant"
	KindVolume    Kind = "volume"
	KindQuota     Kind = "quota"
	KindCatalogue Kind = "catalogue" // instance types, feature gates, clusters, own identity
	KindAdmin     Kind = "admin"     // every /admin route
)

// Object is what is acted upon. Team and User are its owner; empty for shared objects (templates, catalogue).
type Object struct {
	Kind      Kind
	Namespace string
	Name      string
	Team      string
	User      string
	// Operation names what the native API does to a sandbox (OpSandboxExec and its kin), so that approvals cover it
	// there. Other surfaces leave it empty; other kinds need no name, verb and kind say enough.
	Operation string
	// Audience is who a template is visible to; empty means everybody.
	Audience []Audience
}

// Audience is one rule of who may see a shared object: a team, and in it certain users. Empty means any.
type Audience struct {
	Team  string
	Users []string
}

// Authenticator turns a presented key (`agbx_…` or `e2b_…`) into a Caller.
// It returns ErrUnauthenticated for a missing, unknown, revoked or expired key.
type Authenticator interface {
	Authenticate(ctx context.Context, key string) (Caller, error)
}
