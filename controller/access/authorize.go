package access

// rights says which verbs a kind knows at all, and whether a tenant may use them on what is its own. Admin-only verbs
// are those a tenant may not use.
var rights = map[Kind]map[Verb]bool{
	KindSandbox:   {VerbGet: true, VerbList: true, VerbCreate: true, VerbUpdate: true, VerbDelete: true, VerbUse: true},
	KindEnv:       {VerbGet: true, VerbList: true, VerbCreate: true, VerbUpdate: true, VerbDelete: true, VerbUse: true},
	KindPool:      {VerbGet: true, VerbList: true, VerbCreate: true, VerbUpdate: true, VerbDelete: true, VerbUse: true},
	KindGroup:     {VerbGet: true, VerbList: true, VerbUpdate: true, VerbDelete: true},
	KindTemplate:  {VerbGet: true, VerbList: true, VerbUse: true, VerbCreate: false, VerbUpdate: false, VerbDelete: false},
	KindAPIKey:    {VerbGet: true, VerbList: true, VerbCreate: true, VerbDelete: true, VerbUpdate: false},
	KindApproval:  {VerbGet: true, VerbList: true, VerbUpdate: true},
	KindGrant:     {VerbGet: true, VerbList: true, VerbDelete: true},
	KindVolume:    {VerbGet: true, VerbList: true, VerbUse: true},
	KindQuota:     {VerbGet: true, VerbList: true, VerbUse: true},
	KindCatalogue: {VerbGet: true, VerbList: true},
	KindAdmin:     {VerbGet: false, VerbList: false, VerbCreate: false, VerbUpdate: false, VerbDelete: false},
}

// Authorize is the only authorisation function: every route of every surface, the data plane included, asks it before
// it answers or acts. It returns nil, or one of ErrUnauthenticated, ErrForbidden, ErrNotFound,
// *ForbiddenForAgentError, *ApprovalRequiredError.
//
// What is not the caller's is ErrNotFound before anything else is said about it, so that no answer tells a foreign
// object from a missing one. Kinds and verbs it does not know are refused.
func Authorize(c Caller, v Verb, o Object) error {
	if c.KeyID == "" {
		return ErrUnauthenticated
	}
	if c.Role != RoleAdmin && c.Role != RoleTenant {
		return ErrForbidden
	}
	verbs, known := rights[o.Kind]
	if !known {
		return ErrForbidden
	}
	tenants, known := verbs[v]
	if !known {
		return ErrForbidden
	}
	if c.Role != RoleAdmin {
		if !tenants {
			return ErrForbidden
		}
		if !owns(c, o) {
			return ErrNotFound
		}
	}
	if !c.Agent {
		return nil
	}
	if o.Kind == KindAdmin {
		return ErrForbidden
	}
	op, isGated := operationOf(v, o)
	switch {
	case !isGated:
		return nil
	case op.Never:
		return &ForbiddenForAgentError{Operation: op}
	default:
		return &ApprovalRequiredError{Operation: op}
	}
}

// owns reports whether o is the tenant's, or shared with it. An object in the tenant's own namespace that names no
// owner is the tenant's: that is how kubectl apply leaves it.
func owns(c Caller, o Object) bool {
	switch o.Kind {
	case KindCatalogue:
		return true
	case KindTemplate:
		return shared(c, o.Audience)
	case KindAPIKey, KindApproval, KindGrant:
		// These live with the platform, not in a namespace: they belong to a person of a team.
		return o.Team != "" && o.User != "" && o.Team == c.Team && o.User == c.User
	case KindQuota:
		return (o.Team == "" || o.Team == c.Team) && (o.User == "" || o.User == c.User)
	default:
		return o.Namespace != "" && o.Namespace == c.Namespace &&
			(o.Team == "" || o.Team == c.Team) && (o.User == "" || o.User == c.User)
	}
}

// shared reports whether an audience includes the caller. No audience is everybody; inside an entry team and users
// must both match, an empty one matching anything; between entries one match is enough.
func shared(c Caller, audience []Audience) bool {
	if len(audience) == 0 {
		return true
	}
	for _, a := range audience {
		if a.Team != "" && a.Team != c.Team {
			continue
		}
		if len(a.Users) == 0 {
			return true
		}
		for _, u := range a.Users {
			if u == c.User {
				return true
			}
		}
	}
	return false
}
