// Package embedded brings a Kubernetes API and a node of its own into the process, for laptops and CI. Nothing
// outside this package knows whether the API it talks to is this one or a cluster's.
package embedded

import (
	"log/slog"

	"k8s.io/client-go/rest"

	"navix.sh/agentbox/controller/claim"
)

// Options says where the embedded platform lives and how it runs sandboxes.
type Options struct {
	// ClusterID is what the first environment names as its cluster.
	ClusterID string
	// DataDir holds everything that persists; one process at a time owns it.
	DataDir string
	// BinDir holds the helper binaries (envd, and the launcher of the built-in runtime); by default the folder of
	// the running executable.
	BinDir string
	// Runtime is "auto", "namespaces", or an OCI runtime's name (runsc, runc, crun).
	Runtime string
	Logger  *slog.Logger
}

// Platform is a running embedded Kubernetes API with its node.
type Platform struct {
	// Config is an administrator's client configuration for in-process use.
	Config *rest.Config
	// Kubeconfig is the path of a 0600 kubeconfig for kubectl.
	Kubeconfig string
	// Dial reaches a port inside a Pod of this node.
	Dial claim.DialFunc
	// Runtime says in one line which runtime isolates the sandboxes, and what it isolates.
	Runtime string
}
