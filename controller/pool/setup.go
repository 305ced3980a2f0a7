// Package pool reconciles SandboxPools: it keeps the wanted number of Pods of the current revision.
package pool

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

// Claims is what the pool reconciler asks of the claim path; *claim.Manager is one.
type Claims interface {
	// Waiting is how many claims wait for a Pod of this pool.
	Waiting(namespace, pool string) int
}

// Options is what the pool reconciler needs beyond the manager.
type Options struct {
	Claims Claims
}

// Setup adds the pool reconciler to the manager.
func Setup(mgr ctrl.Manager, o Options) error { return nil }
