package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApprovalStatus is where a request for an approval stands.
type ApprovalStatus string

// The states of a request. Expired is a state, not an absence: whoever polls learns of it.
const (
	ApprovalPending  ApprovalStatus = "pending"
	ApprovalApproved ApprovalStatus = "approved"
	ApprovalDenied   ApprovalStatus = "denied"
	ApprovalExpired  ApprovalStatus = "expired"
)

// ApprovalScope is how far an approval reaches.
type ApprovalScope string

// The scopes. Once is spent by the first matching call; session holds for the agent's session, two hours at most; key
// holds for the agent's key until it is withdrawn.
const (
	ScopeOnce    ApprovalScope = "once"
	ScopeSession ApprovalScope = "session"
	ScopeKey     ApprovalScope = "key"
)

// How long requests and grants live.
const (
	ApprovalLife = 15 * time.Minute
	SessionLife  = 2 * time.Hour
	// forgetAfter is how long an ended request can still be read.
	forgetAfter = time.Hour
)

// Principal is the agent key that asks.
type Principal struct {
	Team  string `json:"team"`
	User  string `json:"user"`
	KeyID string `json:"keyId"`
}

// Approval is one call of an agent key that waits for a person, or has been decided.
type Approval struct {
	ID        string         `json:"id"`
	Principal Principal      `json:"principal"`
	SessionID string         `json:"sessionId,omitempty"`
	Operation string         `json:"operation"`
	OnceOnly  bool           `json:"onceOnly"`
	Method    string         `json:"method"`
	Path      string         `json:"path"`
	Summary   string         `json:"summary"`
	CreatedAt time.Time      `json:"createdAt"`
	ExpiresAt time.Time      `json:"expiresAt"`
	Status    ApprovalStatus `json:"status"`
	Scope     ApprovalScope  `json:"scope,omitempty"`
	DecidedBy string         `json:"decidedBy,omitempty"`
	DecidedAt time.Time      `json:"decidedAt,omitzero"`
	// Fingerprint is of the concrete call: method, path and body.
	Fingerprint string `json:"fingerprint"`
	// Spent is true once the call that was approved has been made.
	Spent bool `json:"spent,omitempty"`
}

// at is the request as it stands at a time.
func (a Approval) at(now time.Time) Approval {
	if a.Status != ApprovalDenied && !a.Spent && !now.Before(a.ExpiresAt) {
		a.Status = ApprovalExpired
	}
	return a
}

// Grant is a standing approval.
type Grant struct {
	ID        string        `json:"id"`
	Principal Principal     `json:"principal"`
	Scope     ApprovalScope `json:"scope"`
	SessionID string        `json:"sessionId,omitempty"`
	Operation string        `json:"operation"`
	CreatedAt time.Time     `json:"createdAt"`
	// ExpiresAt is zero for one that holds until it is withdrawn.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	GrantedBy string    `json:"grantedBy"`
}

// Errors of decisions.
var (
	// ErrDecided means that the request was decided or has expired already.
	ErrDecided = errors.New("this request was decided or has expired already")
	// ErrScope is wrapped by errors about a scope that the request cannot have.
	ErrScope = errors.New("this request cannot be approved that far")
	// ErrDenied means that a person has refused this very call.
	ErrDenied = errors.New("a person has denied this call")
)

// Held is a gated call as the approval store needs to know it.
type Held struct {
	Method string
	// Path is the concrete path below the API's base, so that one approval means one object.
	Path    string
	Body    []byte
	Session string
	Summary string
}

func (h Held) fingerprint() string {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(h.Method), []byte(h.Path), h.Body} {
		fmt.Fprintf(sum, "%d:", len(part))
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Approvals keeps requests and grants as ConfigMaps of the system namespace, so that a restart loses none. They hold
// no secret: of a body only its fingerprint.
type Approvals struct {
	client    client.Client
	namespace string
	now       func() time.Time
	// asking makes one request of an identical call, however often it comes at once.
	asking sync.Mutex
}

// NewApprovals makes the approvals that go with a key store.
func (s *Store) NewApprovals() *Approvals {
	return &Approvals{client: s.client, namespace: s.namespace, now: s.now}
}

// Spend lets a gated call through, or says what it waits for. It returns nil, nil when a grant covers the call or an
// approval of this very call was spent on it; the request to wait for; or ErrDenied.
func (a *Approvals) Spend(ctx context.Context, c Caller, op Operation, h Held) (*Approval, error) {
	a.asking.Lock()
	defer a.asking.Unlock()
	if !op.OnceOnly {
		covered, err := a.covered(ctx, c, op, h.Session)
		if err != nil || covered {
			return nil, err
		}
	}
	fingerprint := h.fingerprint()
	requests, err := load[Approval](ctx, a, kindRequest, c.KeyID)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		r := requests[i].value.at(a.now())
		if r.Spent || r.Operation != op.ID || subtle.ConstantTimeCompare([]byte(r.Fingerprint), []byte(fingerprint)) != 1 {
			continue
		}
		switch r.Status {
		case ApprovalApproved:
			if r.Scope != ScopeOnce {
				continue // its grant has ended, or was withdrawn
			}
			r.Spent = true
			err := a.save(ctx, requests[i].object, r)
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				continue // another replica spent it
			}
			return nil, err
		case ApprovalPending:
			if r.SessionID != h.Session {
				continue // a request that names no session cannot be approved for one
			}
			return &r, nil
		case ApprovalDenied:
			if a.now().Before(r.ExpiresAt) {
				return nil, ErrDenied
			}
		}
	}
	a.forget(ctx, requests)
	return a.ask(ctx, c, op, h, fingerprint)
}

func (a *Approvals) ask(ctx context.Context, c Caller, op Operation, h Held, fingerprint string) (*Approval, error) {
	now := a.now().UTC().Truncate(time.Second)
	r := Approval{
		ID: mintID(requestPrefix), Principal: Principal{Team: c.Team, User: c.User, KeyID: c.KeyID}, SessionID: h.Session,
		Operation: op.ID, OnceOnly: op.OnceOnly, Method: h.Method, Path: h.Path, Summary: h.Summary,
		CreatedAt: now, ExpiresAt: now.Add(ApprovalLife), Status: ApprovalPending, Fingerprint: fingerprint,
	}
	if err := a.create(ctx, objectName(r.ID, requestPrefix), kindRequest, c.KeyID, r); err != nil {
		return nil, err
	}
	return &r, nil
}

// covered reports whether a grant covers an operation of a key.
func (a *Approvals) covered(ctx context.Context, c Caller, op Operation, session string) (bool, error) {
	grants, err := load[Grant](ctx, a, kindGrant, c.KeyID)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(grants, func(s stored[Grant]) bool {
		g := s.value
		if g.Operation != op.ID || g.Principal.KeyID != c.KeyID || g.ended(a.now()) {
			return false
		}
		return g.Scope == ScopeKey || (g.Scope == ScopeSession && session != "" && g.SessionID == session)
	}), nil
}

func (g Grant) ended(now time.Time) bool { return !g.ExpiresAt.IsZero() && !now.Before(g.ExpiresAt) }

// Requests returns the requests that a caller may see, newest first, as they stand now.
func (a *Approvals) Requests(ctx context.Context, c Caller) ([]Approval, error) {
	all, err := load[Approval](ctx, a, kindRequest, "")
	if err != nil {
		return nil, err
	}
	var out []Approval
	for _, s := range all {
		if Authorize(c, VerbGet, s.value.Object()) == nil {
			out = append(out, s.value.at(a.now()))
		}
	}
	slices.SortFunc(out, func(x, y Approval) int {
		if d := y.CreatedAt.Compare(x.CreatedAt); d != 0 {
			return d
		}
		return strings.Compare(x.ID, y.ID)
	})
	return out, nil
}

// Object is what authorisation is asked about for a request: it belongs to the person whose agent asks.
func (a Approval) Object() Object {
	return Object{Kind: KindApproval, Name: a.ID, Team: a.Principal.Team, User: a.Principal.User}
}

// Object is what authorisation is asked about for a grant.
func (g Grant) Object() Object {
	return Object{Kind: KindGrant, Name: g.ID, Team: g.Principal.Team, User: g.Principal.User}
}

// Request returns one request as it stands now, or ErrNotFound.
func (a *Approvals) Request(ctx context.Context, id string) (Approval, error) {
	s, err := read[Approval](ctx, a, objectName(id, requestPrefix))
	return s.value.at(a.now()), err
}

// Grants returns the grants in force that a caller may see, newest first.
func (a *Approvals) Grants(ctx context.Context, c Caller) ([]Grant, error) {
	all, err := load[Grant](ctx, a, kindGrant, "")
	if err != nil {
		return nil, err
	}
	var out []Grant
	for _, s := range all {
		if !s.value.ended(a.now()) && Authorize(c, VerbGet, s.value.Object()) == nil {
			out = append(out, s.value)
		}
	}
	slices.SortFunc(out, func(x, y Grant) int {
		if d := y.CreatedAt.Compare(x.CreatedAt); d != 0 {
			return d
		}
		return strings.Compare(x.ID, y.ID)
	})
	return out, nil
}

// Grant returns one grant, or ErrNotFound.
func (a *Approvals) Grant(ctx context.Context, id string) (Grant, error) {
	s, err := read[Grant](ctx, a, objectName(id, grantPrefix))
	return s.value, err
}

// Decide approves or denies a pending request on behalf of by. Scope is how far an approval reaches. Errors are
// ErrNotFound, ErrDecided, or wrap ErrScope.
func (a *Approvals) Decide(ctx context.Context, id, by string, approve bool, scope ApprovalScope) (Approval, error) {
	s, err := read[Approval](ctx, a, objectName(id, requestPrefix))
	if err != nil {
		return Approval{}, err
	}
	now := a.now().UTC().Truncate(time.Second)
	r := s.value.at(now)
	if r.Status != ApprovalPending {
		return r, ErrDecided
	}
	r.DecidedBy, r.DecidedAt = by, now
	if !approve {
		r.Status = ApprovalDenied
		return r, a.decided(ctx, s.object, r)
	}
	switch {
	case scope != ScopeOnce && r.OnceOnly:
		return r, fmt.Errorf("%w: %s is approved one call at a time", ErrScope, r.Operation)
	case scope == ScopeSession && r.SessionID == "":
		return r, fmt.Errorf("%w: the call named no session (header X-AgentBox-Session-Id)", ErrScope)
	}
	r.Status, r.Scope = ApprovalApproved, scope
	// From the decision on, there is as much time to make the call as there was to decide.
	r.ExpiresAt = now.Add(ApprovalLife)
	if scope == ScopeOnce {
		return r, a.decided(ctx, s.object, r)
	}
	g := Grant{ID: mintID(grantPrefix), Principal: r.Principal, Scope: scope, Operation: r.Operation, CreatedAt: now, GrantedBy: by}
	if scope == ScopeSession {
		g.SessionID, g.ExpiresAt = r.SessionID, now.Add(SessionLife)
	}
	// The decision comes first: a grant that cannot be written then leaves an agent asking again, and not one that may
	// do what nobody approved.
	if err := a.decided(ctx, s.object, r); err != nil {
		return r, err
	}
	if err := a.create(ctx, objectName(g.ID, grantPrefix), kindGrant, g.Principal.KeyID, g); err != nil {
		return r, fmt.Errorf("write the grant: %w", err)
	}
	return r, nil
}

func (a *Approvals) decided(ctx context.Context, object *corev1.ConfigMap, r Approval) error {
	err := a.save(ctx, object, r)
	if apierrors.IsConflict(err) {
		return ErrDecided
	}
	return err
}

// Withdraw ends a grant.
func (a *Approvals) Withdraw(ctx context.Context, id string) error {
	name := objectName(id, grantPrefix)
	if name == "" {
		return ErrNotFound
	}
	err := a.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.namespace}})
	if apierrors.IsNotFound(err) {
		return ErrNotFound
	}
	return err
}
