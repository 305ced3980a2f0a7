package native

import (
	"context"
	"errors"
	"net/http"
	"time"

	"navix.sh/agentbox/controller/access"
)

type keyItem struct {
	KeyID       string      `json:"keyId"`
	Mode        string      `json:"mode"`
	User        string      `json:"user"`
	Team        string      `json:"team"`
	Role        access.Role `json:"role"`
	Description string      `json:"description,omitempty"`
	IssuedAt    time.Time   `json:"issuedAt,omitzero"`
	ExpiresAt   time.Time   `json:"expiresAt,omitzero"`
	LastUsedAt  time.Time   `json:"lastUsedAt,omitzero"`
	SyncSource  string      `json:"syncSource,omitempty"`
}

type createdKey struct {
	APIKey      string      `json:"apiKey,omitempty"`
	KeyID       string      `json:"keyId"`
	Mode        string      `json:"mode"`
	User        string      `json:"user"`
	Team        string      `json:"team"`
	Role        access.Role `json:"role"`
	Description string      `json:"description,omitempty"`
	IssuedAt    time.Time   `json:"issuedAt"`
	ExpiresAt   time.Time   `json:"expiresAt,omitzero"`
}

type keyResult struct {
	KeyID   string `json:"keyId"`
	Message string `json:"message"`
}

type ownKeyBody struct {
	Description string    `json:"description"`
	ExpiresAt   time.Time `json:"expiresAt"`
	Mode        string    `json:"mode"`
}

type anyKeyBody struct {
	Namespace   string    `json:"namespace"`
	User        string    `json:"user"`
	Team        string    `json:"team"`
	Description string    `json:"description"`
	ExpiresAt   time.Time `json:"expiresAt"`
	Mode        string    `json:"mode"`
	TokenHash   string    `json:"tokenHash"`
	HashPrefix  string    `json:"hashPrefix"`
	IssuedAt    time.Time `json:"issuedAt"`
}

func keyItemOf(k access.Key) keyItem {
	return keyItem{
		KeyID: k.ID, Mode: modeOf(k.Agent), User: k.User, Team: k.Team, Role: k.Role, Description: k.Description,
		IssuedAt: utc(k.IssuedAt), ExpiresAt: utc(k.ExpiresAt), LastUsedAt: utc(k.LastUsedAt).Truncate(time.Second), SyncSource: k.SyncSource,
	}
}

func keyObject(k access.Key) access.Object {
	return access.Object{Kind: access.KindAPIKey, Name: k.ID, Team: k.Team, User: k.User}
}

// serveKeys lists the keys that keep says. The document wants a bare list, so the total is in a header.
func (c *call) serveKeys(keep func(access.Key) bool, filters map[string]func(keyItem) string) (*response, error) {
	for name, value := range map[string]func(keyItem) string{
		"keyId": func(r keyItem) string { return r.KeyID },
		"mode":  func(r keyItem) string { return r.Mode },
		"user":  func(r keyItem) string { return r.User },
		"team":  func(r keyItem) string { return r.Team },
		"role":  func(r keyItem) string { return string(r.Role) },
	} {
		filters[name] = value
	}
	return lister[keyItem]{
		kind: "api-key",
		rows: func(context.Context) ([]keyItem, error) {
			var out []keyItem
			for _, k := range c.Access.List() {
				if keep(k) {
					out = append(out, keyItemOf(k))
				}
			}
			return out, nil
		},
		key:         func(r keyItem) string { return r.KeyID },
		filters:     filters,
		wrap:        func(p page[keyItem]) any { return p.Items },
		totalHeader: true,
	}.serve(c)
}

func listOwnKeys(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, c.own(access.KindAPIKey)); err != nil {
		return nil, err
	}
	return c.serveKeys(func(k access.Key) bool {
		return k.Team == c.caller.Team && k.User == c.caller.User &&
			access.Authorize(c.caller, access.VerbGet, keyObject(k)) == nil
	}, map[string]func(keyItem) string{})
}

func listAllKeys(c *call) (*response, error) {
	if err := c.admin(access.VerbList); err != nil {
		return nil, err
	}
	namespace := c.query.Get("namespace")
	return c.serveKeys(
		func(k access.Key) bool { return namespace == "" || k.Namespace == namespace },
		map[string]func(keyItem) string{"namespace": func(keyItem) string { return namespace }},
	)
}

// createOwnKey issues a key that acts as the caller. An unrestricted one has the caller's role; an agent is a tenant
// whoever it works for.
func createOwnKey(c *call) (*response, error) {
	if err := c.authorize(access.VerbCreate, c.own(access.KindAPIKey)); err != nil {
		return nil, err
	}
	body, err := decode[ownKeyBody](c)
	if err != nil {
		return nil, err
	}
	spec := access.Spec{
		Role: c.caller.Role, Agent: body.Mode == "agent", Team: c.caller.Team, User: c.caller.User,
		Namespace: c.caller.Namespace, Description: body.Description, ExpiresAt: body.ExpiresAt,
	}
	if spec.Agent {
		spec.Role = access.RoleTenant
	}
	return c.issue(spec)
}

func createAnyKey(c *call) (*response, error) {
	if err := c.admin(access.VerbCreate); err != nil {
		return nil, err
	}
	body, err := decode[anyKeyBody](c)
	if err != nil {
		return nil, err
	}
	if body.HashPrefix != "" && (len(body.TokenHash) < len(body.HashPrefix) || body.TokenHash[:len(body.HashPrefix)] != body.HashPrefix) {
		return nil, badBody("leave hashPrefix out", "hashPrefix is not the beginning of tokenHash")
	}
	if !body.IssuedAt.IsZero() && body.TokenHash == "" {
		return nil, badBody("leave issuedAt out", "issuedAt goes with an imported key only, and tokenHash is missing")
	}
	return c.issue(access.Spec{
		Role: access.RoleTenant, Agent: body.Mode == "agent", Team: body.Team, User: body.User, Namespace: body.Namespace,
		Description: body.Description, ExpiresAt: body.ExpiresAt, TokenHash: body.TokenHash, IssuedAt: body.IssuedAt,
	})
}

func (c *call) issue(spec access.Spec) (*response, error) {
	if c.dryRun() {
		k, err := c.Access.Validate(spec)
		if err != nil {
			return nil, err
		}
		after := keyItemOf(k)
		if spec.TokenHash == "" {
			after.KeyID = "" // it is drawn when the key is
		}
		return plan{before: struct{}{}, after: after}.response(), nil
	}
	k, plain, err := c.Access.Issue(c.ctx, spec)
	if err != nil {
		return nil, err
	}
	c.log.Info("a key was issued", "requestId", c.id, "key", k.ID, "role", k.Role, "mode", modeOf(k.Agent), "team", k.Team, "user", k.User, "by", c.caller.KeyID)
	return &response{status: http.StatusCreated, body: createdKey{
		APIKey: plain, KeyID: k.ID, Mode: modeOf(k.Agent), User: k.User, Team: k.Team, Role: k.Role,
		Description: k.Description, IssuedAt: utc(k.IssuedAt), ExpiresAt: utc(k.ExpiresAt),
	}}, nil
}

func deleteOwnKey(c *call) (*response, error) {
	k, known := c.Access.Get(c.param("name"))
	missing := notFound("api-key", c.param("name"), "list the api-keys to see which there are")
	// An administrator's own keys are here, those of others under /admin.
	if !known || k.Team != c.caller.Team || k.User != c.caller.User {
		return nil, missing
	}
	if err := c.authorize(access.VerbDelete, keyObject(k)); err != nil {
		if errors.Is(err, access.ErrNotFound) {
			return nil, missing
		}
		return nil, err
	}
	return c.revoke(k)
}

func deleteAnyKey(c *call) (*response, error) {
	if err := c.admin(access.VerbDelete); err != nil {
		return nil, err
	}
	k, known := c.Access.Get(c.param("name"))
	if !known {
		return nil, notFound("api-key", c.param("name"), "list the admin-api-keys to see which there are")
	}
	return c.revoke(k)
}

func (c *call) revoke(k access.Key) (*response, error) {
	if c.dryRun() {
		p := plan{}
		if k.ID == c.caller.KeyID {
			p.warnings = append(p.warnings, "this is the key that makes the request")
		}
		return p.response(), nil
	}
	if err := c.release(k.ID); err != nil {
		return nil, err
	}
	if err := c.Access.Revoke(c.ctx, k.ID); err != nil {
		return nil, err
	}
	c.log.Info("a key was revoked", "requestId", c.id, "key", k.ID, "by", c.caller.KeyID)
	return ok(keyResult{KeyID: k.ID, Message: "key revoked"}), nil
}

// promoteKey would make a key known to every cluster; without a hub there is nobody to tell.
func promoteKey(c *call) (*response, error) {
	if err := c.admin(access.VerbUpdate); err != nil {
		return nil, err
	}
	k, known := c.Access.Get(c.param("name"))
	if !known {
		return nil, notFound("api-key", c.param("name"), "list the admin-api-keys to see which there are")
	}
	if k.SyncSource != "" {
		return nil, conflict("there is nothing to do", "key %s is known to every cluster already", k.ID)
	}
	return nil, notImplemented("issue a key on each cluster", "keys are not shared between clusters: this deployment has no hub")
}
