package access

// Operation is one entry of the approval catalogue: a platform write that is not an agent's to make alone.
type Operation struct {
	// ID is the stable name that approvals, grants and clients use, such as "env.create".
	ID string
	// Act completes "an agent key may … only after …".
	Act string
	// OnceOnly operations are approved one call at a time, never for a session or a key.
	OnceOnly bool
	// Never operations are refused to agent keys outright.
	Never bool
}

type act struct {
	verb Verb
	kind Kind
}

// gated holds the operations that follow from the verb and the kind alone. Every surface is bound by them.
var gated = map[act]Operation{
	{VerbCreate, KindEnv}:    {ID: "env.create", Act: "create an environment"},
	{VerbUpdate, KindEnv}:    {ID: "env.update", Act: "change an environment"},
	{VerbDelete, KindEnv}:    {ID: "env.delete", Act: "delete an environment", OnceOnly: true},
	{VerbCreate, KindPool}:   {ID: "pool.create", Act: "add a pool"},
	{VerbUpdate, KindPool}:   {ID: "pool.update", Act: "change a pool"},
	{VerbDelete, KindPool}:   {ID: "pool.delete", Act: "delete a pool", OnceOnly: true},
	{VerbUpdate, KindGroup}:  {ID: "autoscaling.update", Act: "change a scaling group"},
	{VerbDelete, KindGroup}:  {ID: "autoscaling.delete", Act: "delete a scaling group", OnceOnly: true},
	{VerbDelete, KindAPIKey}: {ID: "apikey.delete", Act: "delete an API key", OnceOnly: true},

	{VerbCreate, KindAPIKey}:   {ID: "apikey.create", Act: "issue an API key", Never: true},
	{VerbUpdate, KindAPIKey}:   {ID: "apikey.promote", Act: "promote an API key", Never: true},
	{VerbUpdate, KindApproval}: {ID: "approval.decide", Act: "decide an approval", Never: true},
	{VerbDelete, KindGrant}:    {ID: "grant.revoke", Act: "withdraw a grant", Never: true},
}

// The operations on one sandbox are gated only where the native API makes them: driving sandboxes is what agents are
// for, and they do it through the E2B surface, which no approval covers. The native API names them in Object.Operation.
const (
	OpSandboxCreate    = "sandbox.create"
	OpSandboxDelete    = "sandbox.delete"
	OpSandboxUpdate    = "sandbox.update"
	OpSandboxExec      = "sandbox.exec"
	OpSandboxExecToken = "sandbox.execToken"
)

var sandboxOperations = map[string]Operation{
	OpSandboxCreate:    {ID: OpSandboxCreate, Act: "create a sandbox through the platform API"},
	OpSandboxDelete:    {ID: OpSandboxDelete, Act: "delete a sandbox through the platform API", OnceOnly: true},
	OpSandboxUpdate:    {ID: OpSandboxUpdate, Act: "change a sandbox's timeout through the platform API"},
	OpSandboxExec:      {ID: OpSandboxExec, Act: "run a command through the platform API"},
	OpSandboxExecToken: {ID: OpSandboxExecToken, Act: "open a terminal through the platform API", OnceOnly: true},
}

// operationOf returns the catalogue entry of an act. The bool is false for acts that no approval covers.
func operationOf(v Verb, o Object) (Operation, bool) {
	if o.Kind == KindSandbox {
		op, ok := sandboxOperations[o.Operation]
		return op, ok
	}
	op, ok := gated[act{v, o.Kind}]
	return op, ok
}

// Operations returns the whole catalogue, in no particular order.
func Operations() []Operation {
	out := make([]Operation, 0, len(gated)+len(sandboxOperations))
	for _, op := range gated {
		out = append(out, op)
	}
	for _, op := range sandboxOperations {
		out = append(out, op)
	}
	return out
}
