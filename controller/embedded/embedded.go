// Package embedded brings a Kubernetes API and a node of its own into the process, for laptops and CI. Nothing
// outside this package knows whether the API it talks to is this one or a cluster's.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/embedded/apiserver"
	"navix.sh/agentbox/controller/embedded/collector"
	"navix.sh/agentbox/controller/embedded/node"
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
	// Logs reads the output of a container.
	Logs LogReader

	api  *apiserver.Server
	node *node.Agent
	// stopCollector ends the garbage collector and waits for it.
	stopCollector func()
}

// LogReader opens the log of a container of a Pod, as a kubelet serves it: o chooses the container and the part.
type LogReader func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error)

// Start opens the data directory and returns once the API serves and the node runs Pods. ctx bounds the start only.
func Start(ctx context.Context, o Options) (_ *Platform, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.BinDir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the folder of the helper binaries: %w", err)
		}
		o.BinDir = filepath.Dir(self)
	}
	p := &Platform{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if p.api, err = apiserver.Start(ctx, apiserver.Options{DataDir: filepath.Join(o.DataDir, "api"), Logger: o.Logger}); err != nil {
		return nil, fmt.Errorf("start the embedded Kubernetes API: %w", err)
	}
	p.Config, p.Kubeconfig = p.api.Config, p.api.Kubeconfig
	if p.node, err = node.Start(ctx, node.Options{
		Config: p.Config, NodeName: apiserver.NodeName, DataDir: filepath.Join(o.DataDir, "node"), BinDir: o.BinDir,
		Runtime: o.Runtime, Logger: o.Logger,
	}); err != nil {
		return nil, fmt.Errorf("start the node agent: %w", err)
	}
	if err := p.startCollector(ctx, o.Logger); err != nil {
		return nil, err
	}
	p.Dial, p.Logs, p.Runtime = p.node.Dial, p.node.Logs, p.node.Describe()
	p.api.ServeLogs(apiserver.LogFunc(p.Logs))
	if err := seed(ctx, p.Config, o.DataDir, o.ClusterID); err != nil {
		return nil, fmt.Errorf("seed the platform: %w", err)
	}
	return p, nil
}

func (p *Platform) startCollector(ctx context.Context, log *slog.Logger) error {
	c, err := collector.New(p.Config, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			log.Error("the garbage collector has stopped; objects without an owner stay", "error", err)
		}
	}()
	p.stopCollector = func() { cancel(); <-done }
	return nil
}

// Failed receives the reason when the API ends by itself; the platform is of no use then.
func (p *Platform) Failed() <-chan error { return p.api.Failed() }

// Stop ends every sandbox, then the API. What is in the API stays on the disk.
func (p *Platform) Stop(ctx context.Context) error {
	var errs []error
	if p.stopCollector != nil {
		p.stopCollector()
	}
	if p.node != nil {
		errs = append(errs, p.node.Stop(ctx))
	}
	if p.api != nil {
		p.api.Stop()
	}
	return errors.Join(errs...)
}
