package catalogue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// How a quota is kept: a ResourceQuota in the system namespace. spec.hard holds the totals; the ledger of who holds
// how much is an annotation, so that each reservation is one compare-and-swap on one object. Whoever runs a cluster
// may write such objects by hand; those the configuration file declares carry a label and follow the file.
const (
	labelQuota = v1alpha1.Prefix + "quota" // the quota's id
	labelFile  = v1alpha1.Prefix + "quota-from-file"

	annotationName = v1alpha1.Prefix + "quota-name"
	annotationTeam = v1alpha1.Prefix + "quota-team"
	annotationUser = v1alpha1.Prefix + "quota-user"
	annotationHeld = v1alpha1.Prefix + "quota-held"

	hardPrefix  = "instancetype.agentbox.navix.sh/"
	quotaPrefix = "quota-"
)

// What is said about a quota beside its numbers: keys of its metadata, and of the object's annotations.
const (
	KeyPoolType  = "quota.scitix.ai/pool-type"
	KeyPoolName  = "quota.scitix.ai/pool-name"
	KeySkipCheck = "quota.scitix.ai/skip-check"
)

// Metadata is what is said about a quota beside its numbers.
func (q Quota) Metadata() map[string]string {
	m := map[string]string{}
	set(m, KeyPoolType, q.PoolType)
	set(m, KeyPoolName, q.PoolName)
	skip := "false"
	if q.SkipCheck {
		skip = "true"
	}
	m[KeySkipCheck] = skip
	return m
}

// State is a quota with what is held of it.
type State struct {
	Quota
	// Used is units held, by instance type.
	Used map[string]int64
}

// Free is how many more units of a type may be held. The bool is false when nothing caps it.
func (s State) Free(instanceType string) (int64, bool) {
	if s.SkipCheck {
		return 0, false
	}
	return max(0, s.Total[instanceType]-s.Used[instanceType]), true
}

// Holding is what one pool, or one write that is on its way, holds.
type Holding struct {
	InstanceType string `json:"type"`
	Units        int64  `json:"units"`
	// Since is when a write on its way began; zero for a pool.
	Since time.Time `json:"since,omitzero"`
}

// ErrUnknownQuota means that no quota has the name.
var ErrUnknownQuota = errors.New("no such quota")

// ExhaustedError means that a reservation does not fit.
type ExhaustedError struct {
	Quota, InstanceType string
	Asked, Free, Total  int64
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("quota %s has %d of %d units of %s left, and %d more are needed",
		e.Quota, e.Free, e.Total, e.InstanceType, e.Asked)
}

// Ledger keeps the quotas of a cluster. Any number of controllers may use one at the same time.
type Ledger struct {
	client    client.Client
	namespace string
	catalogue *Catalogue
	now       func() time.Time
}

// NewLedger makes a ledger over the quotas of the catalogue and of the system namespace.
func NewLedger(c client.Client, systemNamespace string, cat *Catalogue) *Ledger {
	return &Ledger{client: c, namespace: systemNamespace, catalogue: cat, now: time.Now}
}

// Sync makes the quota objects follow the configuration file. What is held stays as it is.
func (l *Ledger) Sync(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, q := range l.catalogue.Quotas {
		wanted[quotaPrefix+q.ID] = true
		if err := l.sync(ctx, q); err != nil {
			return fmt.Errorf("quota %s: %w", q.ID, err)
		}
	}
	var list corev1.ResourceQuotaList
	err := l.client.List(ctx, &list, client.InNamespace(l.namespace), client.MatchingLabels{labelFile: "true"})
	if err != nil {
		return fmt.Errorf("list the quotas of an earlier configuration: %w", err)
	}
	for i := range list.Items {
		if !wanted[list.Items[i].Name] {
			if err := client.IgnoreNotFound(l.client.Delete(ctx, &list.Items[i])); err != nil {
				return fmt.Errorf("quota %s is no longer configured: %w", list.Items[i].Name, err)
			}
		}
	}
	return nil
}

func (l *Ledger) sync(ctx context.Context, q Quota) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		obj := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: quotaPrefix + q.ID, Namespace: l.namespace}}
		err := l.client.Get(ctx, client.ObjectKeyFromObject(&obj), &obj)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		if obj.Labels == nil {
			obj.Labels = map[string]string{}
		}
		if obj.Annotations == nil {
			obj.Annotations = map[string]string{}
		}
		obj.Labels[labelQuota], obj.Labels[labelFile] = q.ID, "true"
		set(obj.Annotations, annotationName, q.Name)
		set(obj.Annotations, annotationTeam, q.Team)
		set(obj.Annotations, annotationUser, q.User)
		set(obj.Annotations, KeyPoolType, q.PoolType)
		set(obj.Annotations, KeyPoolName, q.PoolName)
		skip := ""
		if q.SkipCheck {
			skip = "true"
		}
		set(obj.Annotations, KeySkipCheck, skip)
		obj.Spec.Hard = corev1.ResourceList{}
		for name, n := range q.Total {
			obj.Spec.Hard[corev1.ResourceName(hardPrefix+name)] = *resource.NewQuantity(n, resource.DecimalSI)
		}
		if missing {
			return l.client.Create(ctx, &obj)
		}
		return l.client.Update(ctx, &obj)
	})
}

func set(m map[string]string, key, value string) {
	if value == "" {
		delete(m, key)
		return
	}
	m[key] = value
}

// Quotas returns every quota, by name.
func (l *Ledger) Quotas(ctx context.Context) ([]State, error) {
	objects, err := l.objects(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]State, 0, len(objects))
	for i := range objects {
		s, _, err := stateOf(&objects[i])
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Find returns the quota with a name (the url that pools carry), or ErrUnknownQuota.
func (l *Ledger) Find(ctx context.Context, name string) (State, error) {
	all, err := l.Quotas(ctx)
	if err != nil {
		return State{}, err
	}
	i := slices.IndexFunc(all, func(s State) bool { return s.Name == name })
	if i < 0 {
		return State{}, fmt.Errorf("%w: %s", ErrUnknownQuota, name)
	}
	return all[i], nil
}

func (l *Ledger) objects(ctx context.Context) ([]corev1.ResourceQuota, error) {
	var list corev1.ResourceQuotaList
	if err := l.client.List(ctx, &list, client.InNamespace(l.namespace), client.HasLabels{labelQuota}); err != nil {
		return nil, fmt.Errorf("list the quotas: %w", err)
	}
	return list.Items, nil
}

// stateOf reads a quota object. What it cannot read it refuses, so that nothing is handed out against it.
func stateOf(obj *corev1.ResourceQuota) (State, map[string]Holding, error) {
	s := State{
		Quota: Quota{
			ID:        obj.Labels[labelQuota],
			Name:      obj.Annotations[annotationName],
			Team:      obj.Annotations[annotationTeam],
			User:      obj.Annotations[annotationUser],
			PoolType:  obj.Annotations[KeyPoolType],
			PoolName:  obj.Annotations[KeyPoolName],
			SkipCheck: obj.Annotations[KeySkipCheck] == "true",
			Total:     map[string]int64{},
		},
		Used: map[string]int64{},
	}
	if s.Name == "" {
		s.Name = s.ID
	}
	for name, q := range obj.Spec.Hard {
		if t, ok := strings.CutPrefix(string(name), hardPrefix); ok {
			s.Total[t] = q.Value()
		}
	}
	held := map[string]Holding{}
	if raw := obj.Annotations[annotationHeld]; raw != "" {
		if err := json.Unmarshal([]byte(raw), &held); err != nil {
			return State{}, nil, fmt.Errorf("quota %s: its annotation %s cannot be read: %w", s.ID, annotationHeld, err)
		}
	}
	for _, h := range held {
		s.Used[h.InstanceType] += h.Units
	}
	return s, held, nil
}

// pendingPrefix marks what a write holds before its pool says so.
const pendingPrefix = "pending/"

// Reserve holds units of a quota for a write, before anything is made with them; token names the write. What does not
// fit is an *ExhaustedError. Reserving again with the same token replaces what it held. The write ends with Settle,
// whatever came of it; one that dies is forgotten after a while.
func (l *Ledger) Reserve(ctx context.Context, quota, token, instanceType string, units int64) error {
	return l.change(ctx, quota, func(s State, held map[string]Holding) error {
		before := held[pendingPrefix+token]
		if before.InstanceType == instanceType {
			s.Used[instanceType] -= before.Units
		}
		if err := s.fits(instanceType, units); err != nil {
			return err
		}
		if units <= 0 {
			delete(held, pendingPrefix+token)
			return nil
		}
		held[pendingPrefix+token] = Holding{InstanceType: instanceType, Units: units, Since: l.now().UTC().Truncate(time.Second)}
		return nil
	})
}

// Check says what Reserve would, and changes nothing.
func (l *Ledger) Check(ctx context.Context, quota, instanceType string, units int64) error {
	s, err := l.Find(ctx, quota)
	if err != nil {
		return err
	}
	return s.fits(instanceType, units)
}

func (s State) fits(instanceType string, units int64) error {
	free, capped := s.Free(instanceType)
	if !capped || units <= 0 || units <= free {
		return nil
	}
	return &ExhaustedError{Quota: s.Name, InstanceType: instanceType, Asked: units, Free: free, Total: s.Total[instanceType]}
}

// Settle ends a write: what its token held is let go, and what the pool holds becomes what the pool is. real reads the
// pool; it is asked after the quota was read, so that of two writes the later one's truth stays. A holder names a pool
// (see Holder). A quota that is gone holds nothing.
func (l *Ledger) Settle(ctx context.Context, quota, token, holder string, real func(context.Context) (Holding, error)) error {
	err := l.change(ctx, quota, func(_ State, held map[string]Holding) error {
		now, err := real(ctx)
		if err != nil {
			return err
		}
		delete(held, pendingPrefix+token)
		if now.Units <= 0 {
			delete(held, holder)
			return nil
		}
		held[holder] = Holding{InstanceType: now.InstanceType, Units: now.Units}
		return nil
	})
	if errors.Is(err, ErrUnknownQuota) {
		return nil
	}
	return err
}

// conflictBackoff is generous: many pools of one tenant may be made at once, and each conflict means that another one
// went through.
var conflictBackoff = wait.Backoff{Steps: 30, Duration: 2 * time.Millisecond, Factor: 1.3, Jitter: 0.5}

// change applies f to a quota's holdings as one compare-and-swap.
func (l *Ledger) change(ctx context.Context, quota string, f func(State, map[string]Holding) error) error {
	return retry.RetryOnConflict(conflictBackoff, func() error {
		objects, err := l.objects(ctx)
		if err != nil {
			return err
		}
		for i := range objects {
			s, held, err := stateOf(&objects[i])
			if err != nil {
				return err
			}
			if s.Name != quota {
				continue
			}
			before := maps.Clone(held)
			if err := f(s, held); err != nil {
				return err
			}
			if maps.Equal(before, held) {
				return nil
			}
			raw, err := json.Marshal(held)
			if err != nil {
				return err
			}
			if objects[i].Annotations == nil {
				objects[i].Annotations = map[string]string{}
			}
			objects[i].Annotations[annotationHeld] = string(raw)
			return l.client.Update(ctx, &objects[i])
		}
		return fmt.Errorf("%w: %s", ErrUnknownQuota, quota)
	})
}
