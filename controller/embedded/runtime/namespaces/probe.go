package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"navix.sh/agentbox/controller/embedded/runtime"
)

// Probe runs a program that does nothing with an OCI runtime, and says why that is not possible on this machine.
// dir must not exist; it is deleted.
func (r *Runtime) Probe(ctx context.Context, dir string) (err error) {
	if r.ids.Single() {
		return errors.New("OCI runtimes need the several users of a sandbox that only root can give it: start the controller as root")
	}
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, RemoveTree(dir)) }()
	if err := os.Lchown(tree, r.ids.Base, r.ids.Base); err != nil {
		return err
	}
	name := filepath.Base(dir)
	p, err := r.StartPod(ctx, runtime.PodConfig{UID: name, Hostname: "probe", Dir: dir, Address: "127.0.0.2", LoopbackOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop(ctx)) }()
	const program = "/sandbox-init"
	if err := p.Start(ctx, runtime.ContainerConfig{
		ID: name, Name: "main", Root: runtime.Root{Tree: tree}, Args: []string{program, "true"},
		Mounts: []runtime.Mount{{Source: r.path, Target: program, ReadOnly: true}}, Capabilities: DefaultCapabilities,
	}); err != nil {
		return err
	}
	select {
	case end := <-p.Exits():
		if end.Code != 0 {
			return fmt.Errorf("a program that does nothing ended with exit code %d", end.Code)
		}
		return nil
	case <-p.Done():
		return runtime.ErrGone
	case <-ctx.Done():
		return fmt.Errorf("a program that does nothing did not end: %w", context.Cause(ctx))
	}
}
