package pool

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

const (
	// statusEvery bounds how often a busy pool's status is written.
	statusEvery = 500 * time.Millisecond
	// quotaRetry is when a pool that quota or policy stopped tries again.
	quotaRetry = 15 * time.Second
	// lostRetry is when a pool that is being deleted looks for its Pods again.
	lostRetry  = time.Second
	maxBackoff = 5 * time.Minute
	// stableAfter is how long a Pod must have been Ready to show that Pods of its kind do not die at once.
	stableAfter           = 10 * time.Second
	defaultMaxUnavailable = "20%"
)

// reconciler brings pools to their wanted state. controller-runtime runs one Reconcile per pool at a time.
type reconciler struct {
	client client.Client
	// live reads from the API server, past the cache.
	live         client.Reader
	events       record.EventRecorder
	claims       Claims
	clock        clock.Clock
	expectations *expectations

	mu     sync.Mutex
	memory map[types.NamespacedName]*memory
}

// memory is what a pool's reconciler remembers between passes. Losing it in a restart costs at most one retry.
type memory struct {
	admitted Admission
	failing  Failing
	written  time.Time // last status write
	secret   types.UID // pool UID whose init Secret is known to exist
	searched bool      // for Pods that lost their label while no controller ran
}

func (r *reconciler) remember(key types.NamespacedName) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memory[key]
	if m == nil {
		m = &memory{}
		r.memory[key] = m
	}
	return m
}

func (r *reconciler) forget(key types.NamespacedName) {
	r.expectations.forget(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memory, key)
}

// Reconcile makes one step: plan, act, publish the status once.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pool v1alpha1.SandboxPool
	if err := r.client.Get(ctx, req.NamespacedName, &pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	revision := Revision(&pool.Spec)
	if pool.DeletionTimestamp == nil && mark(&pool, revision) {
		if err := r.client.Update(ctx, &pool); err != nil {
			return ctrl.Result{RequeueAfter: settleTime}, ignoreConflict(err)
		}
	}
	pass := &pass{
		reconciler: r, pool: &pool, key: req.NamespacedName, memory: r.remember(req.NamespacedName),
		now: r.clock.Now(), revision: revision,
	}
	err := pass.run(ctx)
	if statusErr := pass.publish(ctx); err == nil {
		err = statusErr
	}
	return ctrl.Result{RequeueAfter: pass.again}, err
}

// mark puts the finalizer and the label of the revision on a pool. It reports whether anything was missing.
func mark(pool *v1alpha1.SandboxPool, revision string) bool {
	added := controllerutil.AddFinalizer(pool, v1alpha1.FinalizerPool)
	if pool.Labels[v1alpha1.LabelTemplateHash] == revision {
		return added
	}
	metav1.SetMetaDataLabel(&pool.ObjectMeta, v1alpha1.LabelTemplateHash, revision)
	return true
}

// pass is one Reconcile of one pool.
type pass struct {
	*reconciler
	pool     *v1alpha1.SandboxPool
	key      types.NamespacedName
	memory   *memory
	now      time.Time
	revision string
	pods     []Pod
	hashes   map[string]int
	done     bool // the pool is gone: no status to publish
	again    time.Duration
}

// lookAgain asks for another pass after d at the latest.
func (p *pass) lookAgain(d time.Duration) {
	if d > 0 && (p.again == 0 || d < p.again) {
		p.again = d
	}
}

func (p *pass) run(ctx context.Context) error {
	var list corev1.PodList
	err := p.client.List(ctx, &list, client.InNamespace(p.key.Namespace), client.MatchingFields{indexPool: p.key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the Pods of pool %s: %w", p.key, err)
	}
	p.hashes = map[string]int{}
	var pinned []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if !metav1.IsControlledBy(pod, p.pool) {
			continue // a Pod of a former pool of this name
		}
		if pod.Labels[v1alpha1.LabelPool] != p.key.Name {
			if err := p.relabel(ctx, pod); err != nil {
				return err
			}
		}
		v := viewOf(pod, p.revision)
		p.pods = append(p.pods, v)
		if !v.Terminating {
			p.hashes[pod.Labels[v1alpha1.LabelTemplateHash]]++
		} else if pod.Labels[v1alpha1.LabelSandboxID] == "" && controllerutil.ContainsFinalizer(pod, v1alpha1.FinalizerPod) {
			pinned = append(pinned, pod)
		}
	}
	creating, again := p.expectations.settle(p.key, p.pods, p.now)
	p.lookAgain(again)
	for _, pod := range pinned {
		if err := p.unpin(ctx, pod); err != nil {
			return err
		}
	}
	if p.pool.DeletionTimestamp != nil {
		return p.finalize(ctx, creating)
	}
	if !p.memory.searched {
		if _, err := p.findLost(ctx); err != nil {
			return err
		}
		p.memory.searched = true
	}
	if err := p.ensureInitSecret(ctx); err != nil {
		return err
	}
	p.backOff()
	plan := MakePlan(State{
		Desired: int(p.pool.Spec.Replicas), MaxUnavailable: maxUnavailable(p.pool), Pods: p.pods,
		Creating: creating, HoldCreates: p.now.Before(p.memory.failing.HoldUntil),
	})
	if err := p.delete(ctx, plan.Delete); err != nil {
		return err
	}
	return p.create(ctx, plan.Create)
}

// backOff makes a pool whose Pods die wait longer and longer before it makes new ones. It is over when a Pod that was
// made since has stayed Ready or serves a sandbox, or when no Pod is missing.
func (p *pass) backOff() {
	f := &p.memory.failing
	var dead *Pod
	stable, recovered := 0, false
	for i := range p.pods {
		pod := &p.pods[i]
		switch {
		case pod.Terminating:
		case pod.Dead:
			dead = pod
		case pod.Serves && pod.Created.After(f.Last):
			recovered = true
		case pod.Ready:
			left := stableAfter - p.now.Sub(pod.ReadySince)
			if f.Times > 0 && left > 0 {
				p.lookAgain(left)
				continue
			}
			stable++
			recovered = recovered || pod.Created.After(f.Last)
		}
	}
	switch {
	case dead != nil:
		f.Times++
		f.Last, f.Why = p.now, dead.Why
		f.HoldUntil = p.now.Add(min(time.Second<<min(f.Times-1, 10), maxBackoff))
		p.events.Eventf(p.pool, corev1.EventTypeWarning, v1alpha1.ReasonPodsFailing, "Pod %s: %s; %s", dead.Name, dead.Why, f)
	case f.Times > 0 && (recovered || stable >= int(p.pool.Spec.Replicas)):
		*f = Failing{}
	}
	p.lookAgain(f.HoldUntil.Sub(p.now))
}

func maxUnavailable(p *v1alpha1.SandboxPool) int {
	v := intstr.FromString(defaultMaxUnavailable)
	if p.Spec.MaxUnavailable != nil {
		v = *p.Spec.MaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, int(p.Spec.Replicas), false)
	if err != nil {
		n = 1
	}
	return max(1, n)
}

// delete removes Pods, each only at the version that was judged: a Pod that was claimed meanwhile stays.
func (p *pass) delete(ctx context.Context, pods []Pod) error {
	var errs []error
	for i := range pods {
		v := &pods[i]
		p.expectations.expectDelete(p.key, v.UID, p.now)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: v.Name}}
		err := p.client.Delete(ctx, pod, client.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion})
		switch {
		case err == nil:
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			p.expectations.deleteFailed(p.key, v.UID)
			p.lookAgain(settleTime) // the cache will show why
		default:
			p.expectations.deleteFailed(p.key, v.UID)
			errs = append(errs, fmt.Errorf("delete Pod %s: %w", v.Name, err))
		}
	}
	return errors.Join(errs...)
}

// create makes n Pods. The first refusal ends the attempt: the rest would be refused for the same reason.
func (p *pass) create(ctx context.Context, n int) error {
	created := 0
	defer func() {
		if created > 0 {
			p.events.Eventf(p.pool, corev1.EventTypeNormal, "PodsCreated", "created %d of %d missing Pods, revision %s", created, n, p.revision)
		}
	}()
	for range n {
		pod := newPod(p.pool, p.revision)
		p.expectations.expectCreate(p.key, pod.Name, p.now)
		err := p.client.Create(ctx, pod)
		if err == nil {
			created++
			p.admit(v1alpha1.ReasonAdmissionGranted, "the last Pod was created")
			continue
		}
		if uncertain(err) {
			// It may exist. The expectation keeps its place until the cache shows it or the time is up.
			p.admit(v1alpha1.ReasonAdmissionError, err.Error())
			return fmt.Errorf("create a Pod of pool %s: %w", p.key, err)
		}
		p.expectations.createFailed(p.key, pod.Name)
		switch {
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
			p.admit(v1alpha1.ReasonResourceQuotaExhausted, err.Error())
			p.lookAgain(quotaRetry)
			return nil
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
			p.admit(v1alpha1.ReasonAdmissionRejected, err.Error())
			return nil // only a change of the spec helps, and that is an event
		default:
			p.admit(v1alpha1.ReasonAdmissionError, err.Error())
			return fmt.Errorf("create a Pod of pool %s: %w", p.key, err)
		}
	}
	return nil
}

func (p *pass) admit(reason, message string) {
	if reason != v1alpha1.ReasonAdmissionGranted && p.memory.admitted.Reason != reason {
		p.events.Event(p.pool, corev1.EventTypeWarning, reason, message)
	}
	p.memory.admitted = Admission{Reason: reason, Message: message}
}

// uncertain reports whether a failed request may have taken effect all the same.
func uncertain(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// ensureInitSecret makes the Secret with which envd is initialised, before the first Pod needs it.
func (p *pass) ensureInitSecret(ctx context.Context) error {
	if p.memory.secret == p.pool.UID {
		return nil
	}
	var token [32]byte
	_, _ = rand.Read(token[:])
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: InitSecretName(p.key.Name), Namespace: p.key.Namespace,
			Labels: map[string]string{v1alpha1.LabelPool: p.key.Name},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(p.pool, v1alpha1.GroupVersion.WithKind("SandboxPool")),
			},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{InitSecretKey: []byte(hex.EncodeToString(token[:]))},
	}
	if err := p.client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create secret %s of pool %s: %w", secret.Name, p.key, err)
	}
	p.memory.secret = p.pool.UID
	return nil
}

// unpin lets go of a Pod that is being deleted and holds no sandbox: no record depends on it.
func (p *pass) unpin(ctx context.Context, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	controllerutil.RemoveFinalizer(pod, v1alpha1.FinalizerPod)
	return ignoreConflict(client.IgnoreNotFound(p.client.Update(ctx, pod))) // a Pod's event brings the reconciler back
}

// findLost gives the pool's Pods that have lost their label, and are therefore in no cache, the label back. It reports
// whether there were any. The claim path does this for Pods that lose it while it watches.
func (p *pass) findLost(ctx context.Context) (bool, error) {
	unlabelled, err := labels.NewRequirement(v1alpha1.LabelPool, selection.DoesNotExist, nil)
	if err != nil {
		return false, err
	}
	var list corev1.PodList
	err = p.live.List(ctx, &list, client.InNamespace(p.key.Namespace), client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*unlabelled)})
	if err != nil {
		return false, fmt.Errorf("list the Pods without a pool's label: %w", err)
	}
	found := false
	for i := range list.Items {
		if pod := &list.Items[i]; metav1.IsControlledBy(pod, p.pool) {
			if err := p.relabel(ctx, pod); err != nil {
				return found, err
			}
			found = true
		}
	}
	return found, nil
}

// relabel puts the pool's label back on one of its Pods.
func (p *pass) relabel(ctx context.Context, pod *corev1.Pod) error {
	next := pod.DeepCopy()
	metav1.SetMetaDataLabel(&next.ObjectMeta, v1alpha1.LabelPool, p.key.Name)
	if err := p.client.Patch(ctx, next, client.MergeFrom(pod)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("label Pod %s as one of pool %s: %w", pod.Name, p.key, err)
	}
	p.events.Eventf(p.pool, corev1.EventTypeWarning, "PodRelabelled", "Pod %s had lost its label %s; it has it back", pod.Name, v1alpha1.LabelPool)
	return nil
}

// finalize deletes every Pod of a pool that is being deleted, whatever it does, and then lets the pool go. The
// claim path leaves a record of each sandbox that ends this way, and releases its Pod.
func (p *pass) finalize(ctx context.Context, creating int) error {
	var errs []error
	for i := range p.pods {
		v := &p.pods[i]
		if v.Terminating {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: v.Name}}
		err := p.client.Delete(ctx, pod, client.Preconditions{UID: &v.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete Pod %s: %w", v.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil || len(p.pods) > 0 || creating > 0 {
		return err
	}
	if found, err := p.findLost(ctx); err != nil || found {
		p.lookAgain(lostRetry) // the cache shows them before that, and their event brings the reconciler back
		return err
	}
	p.done = true
	if !controllerutil.RemoveFinalizer(p.pool, v1alpha1.FinalizerPool) {
		return nil
	}
	err := client.IgnoreNotFound(p.client.Update(ctx, p.pool))
	if apierrors.IsConflict(err) {
		// The cache lags behind the last status write, whose event does not bring the reconciler back.
		p.lookAgain(settleTime)
		return nil
	}
	return err
}

// publish writes the status, once a pass, and only when it says something new. A busy pool's counts are written at
// most every statusEvery; a change of its phase is written at once.
func (p *pass) publish(ctx context.Context) error {
	if p.done {
		return nil
	}
	waiting := 0
	if p.claims != nil {
		waiting = p.claims.Waiting(p.key.Namespace, p.key.Name)
	}
	next := observe(p.pool, p.revision, p.pods, p.hashes, waiting, p.memory.admitted, p.memory.failing)
	if reflect.DeepEqual(next, p.pool.Status) {
		return nil
	}
	if wait := statusEvery - p.now.Sub(p.memory.written); wait > 0 && next.Phase == p.pool.Status.Phase {
		p.lookAgain(wait)
		return nil
	}
	p.pool.Status = next
	err := p.client.Status().Update(ctx, p.pool)
	switch {
	case err == nil:
		p.memory.written = p.now
	case apierrors.IsConflict(err):
		p.lookAgain(settleTime)
	case !apierrors.IsNotFound(err):
		log.FromContext(ctx).Error(err, "the pool's status is not written")
		return fmt.Errorf("write the status of pool %s: %w", p.key, err)
	}
	return nil
}

// ignoreConflict drops a lost optimistic lock, for callers that look again.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}
