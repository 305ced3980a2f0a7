// Package env reconciles SandboxEnvs: it renders the member pools of the local cluster segment from the template and
// keeps their scaling groups and status.
package env

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

// Options is what the env reconciler needs beyond the manager.
type Options struct {
	// ClusterID selects the segment of spec.clusters that this controller owns.
	ClusterID string
}

// Setup adds the env reconciler to the manager.
func Setup(mgr ctrl.Manager, o Options) error { return nil }
