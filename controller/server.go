// Package controller puts the platform together: a Kubernetes API (the cluster's or the embedded one), the
// reconcilers, the claim path, and the three surfaces on one port.
package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/catalogue"
	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/e2b"
	"navix.sh/agentbox/controller/env"
	"navix.sh/agentbox/controller/gateway"
	"navix.sh/agentbox/controller/native"
	"navix.sh/agentbox/controller/pool"
)

// Version is the build's version, set by the linker.
var Version = "dev"

// Run serves until ctx ends and everything it started has ended. It prints one line to out when the platform is
// ready; logs go to logs.
func Run(ctx context.Context, s Settings, out, logs io.Writer) error {
	log, err := newLogger(s, logs)
	if err != nil {
		return err
	}
	keepLibrariesQuiet(log)
	return run(ctx, s, out, log, connect)
}

type connectFunc func(context.Context, Settings, *slog.Logger) (*kubernetes, error)

func run(ctx context.Context, s Settings, out io.Writer, log *slog.Logger, connect connectFunc) (err error) {
	go tuneGC(ctx)
	// Others may pass through, to the images that sandboxes run on; what is secret is closed by itself.
	if err := os.MkdirAll(s.DataDir, 0o711); err != nil {
		return fmt.Errorf("data directory: %w; choose another with --data-dir", err)
	}
	listener, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --listen (port 0 takes a free one)", s.Listen, err)
	}
	defer listener.Close()

	// What was started last ends first; clean-up does not run under the context that a signal has ended.
	var stops []func(context.Context) error
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ShutdownGrace+30*time.Second)
		defer cancel()
		for i := len(stops) - 1; i >= 0; i-- {
			err = errors.Join(err, stops[i](down))
		}
	}()

	kube, err := connect(ctx, s, log)
	if err != nil {
		return err
	}
	stops = append(stops, kube.Stop)

	endpoint := publicEndpoint(s, scheme(s), listener.Addr())
	p, err := assemble(s, publicDomain(s, endpoint), kube, log)
	if err != nil {
		return err
	}
	running := p.start(context.WithoutCancel(ctx))
	stops = append(stops, running.stop)

	if err := p.serve(listener, s, out); err != nil {
		return err
	}
	stops = append(stops, p.shutdown)

	select {
	case <-p.claims.Ready():
	case <-ctx.Done():
		return nil
	case <-running.done:
		return running.why(errors.New("the controller ended before it was ready"))
	}
	// Only now that this process leads: a standby must not replace the key of the one that does.
	key, err := adminKey(ctx, s, kube, p.access)
	if err != nil {
		return running.why(err)
	}
	if err := writeClientEnv(s, endpoint, key, kube.Kubeconfig); err != nil {
		return err
	}
	p.ready.Store(true)
	fmt.Fprintf(out, "ready %s cluster=%s kubernetes=%s runtime=%q client-env=%s\n",
		endpoint, s.ClusterID, kube.Name, kube.Runtime, clientEnvPath(s.DataDir))

	select {
	case <-ctx.Done():
		log.Info("stopping")
		return nil
	case <-running.done:
		return running.why(errors.New("the controller ended"))
	case err := <-kube.Failed:
		return fmt.Errorf("the Kubernetes API ended: %w", err)
	case err := <-p.serveError:
		return err
	}
}

// assemble makes every part and ties them together; nothing runs yet. Domain is the one that clients are told.
func assemble(s Settings, domain string, kube *kubernetes, log *slog.Logger) (*platform, error) {
	mgr, err := newManager(s, kube)
	if err != nil {
		return nil, err
	}
	direct, err := client.NewWithWatch(kube.Config, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	keys, err := access.NewStore(access.Options{Client: direct, SystemNamespace: s.Namespace, Logger: log})
	if err != nil {
		return nil, err
	}
	claims, err := claim.New(claim.Options{
		Client: direct, Cache: mgr.GetCache(), Dial: kube.Dial, ClusterID: s.ClusterID,
		SystemNamespace: s.Namespace, Logger: log.With("component", "claim"), Registerer: metrics,
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(keys); err != nil {
		return nil, err
	}
	if err := mgr.Add(claims); err != nil {
		return nil, err
	}
	goods, err := catalogue.Load(s.Catalogue)
	if err != nil {
		return nil, err
	}
	if err := env.Setup(mgr, env.Options{ClusterID: s.ClusterID, Size: goods.Size}); err != nil {
		return nil, err
	}
	if err := pool.Setup(mgr, pool.Options{Claims: claims}); err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	nativeAPI, err := native.New(native.Options{
		Client: direct, Claims: claims, Access: keys, ClusterID: s.ClusterID, ClusterName: s.ClusterName,
		SystemNamespace: s.Namespace, Version: Version, PublicURL: publicURL(s), Domain: domain,
		Logs: kube.Logs, Catalogue: goods, Logger: log, Registerer: metrics,
		Stopping: stopping,
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(nativeAPI); err != nil { // it keeps the quotas true
		return nil, err
	}
	e2bAPI := e2b.New(e2b.Options{
		Claims: claims, Access: keys, Envs: mgr.GetCache(), ClusterID: s.ClusterID, Domain: domain,
		Logs: kube.Logs, Logger: log.With("component", "e2b"), Registerer: metrics,
	})
	gate := gateway.New(gateway.Options{
		Claims: claims, Access: keys, Domain: s.Domain, Host: publicHost(s), Logger: log.With("component", "gateway"),
	})

	p := &platform{
		manager: mgr, access: keys, claims: claims, gateway: gate, metrics: metrics, log: log,
		grace: s.ShutdownGrace, serveError: make(chan error, 1), stopping: stopping,
	}
	p.server = gateway.NewServer(p.routes(nativeAPI, e2bAPI), log)
	return p, nil
}

// serve starts answering on the listener, with TLS when it is asked for.
func (p *platform) serve(l net.Listener, s Settings, out io.Writer) error {
	config, err := tlsConfig(s, out)
	if err != nil {
		return err
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	go func() {
		if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.serveError <- fmt.Errorf("serve: %w", err)
		}
	}()
	return nil
}
