package catalogue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

const (
	reconcileEvery = 30 * time.Second
	// writeGrace is how long a write may take from its reservation to its pool; after that it has died.
	writeGrace = 2 * time.Minute
)

// Start makes the quotas follow the configuration file, then keeps what is held true to the pools that exist, until
// ctx ends: a pool that vanished, and a write that died half way, give back what they held.
func (l *Ledger) Start(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	synced := false
	for {
		if !synced {
			err := l.Sync(ctx)
			synced = err == nil
			if err != nil && ctx.Err() == nil {
				log.Warn("quotas do not follow the configuration yet; trying again", "error", err)
			}
		}
		if err := l.Reconcile(ctx); err != nil && ctx.Err() == nil {
			log.Warn("quotas could not be compared with the pools; trying again", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Holder names a pool in a ledger.
func Holder(namespace, pool string) string { return namespace + "/" + pool }

// Units is what a member pool holds of its quota: replicas times multiplier. The bool is false for members that name
// no quota.
func Units(m v1alpha1.Member) (quota, instanceType string, units int64, ok bool) {
	quota = m.Config.Labels[v1alpha1.LabelQuotaURL]
	if quota == "" || m.Config.InstanceType == "" {
		return "", "", 0, false
	}
	multiplier := int64(1)
	if m.Config.Multiplier != nil && *m.Config.Multiplier > 1 {
		multiplier = int64(*m.Config.Multiplier)
	}
	var replicas int64
	if m.Spec != nil {
		replicas = int64(m.Spec.Replicas)
	}
	return quota, m.Config.InstanceType, replicas * multiplier, true
}

// Reconcile compares what is held with the pools that exist, once.
func (l *Ledger) Reconcile(ctx context.Context) error {
	objects, err := l.objects(ctx)
	if err != nil {
		return err
	}
	for i := range objects {
		s, _, err := stateOf(&objects[i])
		if err != nil {
			return err
		}
		err = l.change(ctx, s.Name, func(s State, held map[string]Holding) error {
			// The pools are read after the quota: see Settle.
			real, err := l.pools(ctx, s.Name)
			if err != nil {
				return err
			}
			follow(held, real, l.now())
			return nil
		})
		if err != nil && !errors.Is(err, ErrUnknownQuota) {
			return fmt.Errorf("quota %s: %w", s.Name, err)
		}
	}
	return nil
}

// pools is what the pools that name a quota hold of it, by holder.
func (l *Ledger) pools(ctx context.Context, quota string) (map[string]Holding, error) {
	var envs v1alpha1.SandboxEnvList
	if err := l.client.List(ctx, &envs); err != nil {
		return nil, fmt.Errorf("list the environments: %w", err)
	}
	out := map[string]Holding{}
	for i := range envs.Items {
		for _, m := range Members(&envs.Items[i]) {
			if name, instanceType, units, ok := Units(m); ok && name == quota && units > 0 {
				out[Holder(envs.Items[i].Namespace, m.Name)] = Holding{InstanceType: instanceType, Units: units}
			}
		}
	}
	return out, nil
}

// Members are an environment's member pools on every cluster; none once it is being deleted.
func Members(env *v1alpha1.SandboxEnv) []v1alpha1.Member {
	if env.DeletionTimestamp != nil {
		return nil
	}
	var out []v1alpha1.Member
	for _, segment := range env.Spec.Clusters {
		out = append(out, segment.Members...)
	}
	return out
}

// follow makes held what the pools are, and forgets writes that died.
func follow(held, real map[string]Holding, now time.Time) {
	for name, h := range held {
		if strings.HasPrefix(name, pendingPrefix) {
			if now.Sub(h.Since) > writeGrace {
				delete(held, name)
			}
			continue
		}
		if _, exists := real[name]; !exists {
			delete(held, name)
		}
	}
	maps.Copy(held, real)
}
