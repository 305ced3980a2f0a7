package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/discovery"
	clientset "k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/claim"
	"navix.sh/agentbox/controller/embedded"
	"navix.sh/agentbox/controller/podlog"
)

// renewDeadline is how long the leader tries to renew its lease before it gives up; controller-runtime's default.
const renewDeadline = 10 * time.Second

// kubernetes is the API that the controller works on, and how it reaches Pods there. Beyond this file nothing knows
// whether it is a cluster's or the embedded one.
type kubernetes struct {
	Name       string // for people: "embedded" or the server's address
	Config     *rest.Config
	Kubeconfig string // a kubeconfig for kubectl; empty on a cluster
	Runtime    string // what isolates the sandboxes, for people
	Dial       claim.DialFunc
	Logs       podlog.Reader
	Keys       keyKeeper // where the first key outlives this process; nil where client.env does
	Stop       func(context.Context) error
	Failed     <-chan error // the API ended by itself; nil where that is not ours to notice
	// Identity is who holds the leadership. It names a process on a cluster. On the embedded API it is always the
	// same, since one process at a time owns its data: a restart need not wait for the lease of a killed predecessor.
	Identity string
}

func connect(ctx context.Context, s Settings, log *slog.Logger) (*kubernetes, error) {
	config, err := clusterConfig(s)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return connectEmbedded(ctx, s, log)
	}
	return connectCluster(config, s)
}

func connectCluster(config *rest.Config, s Settings) (*kubernetes, error) {
	// The claim path must not wait for the client's own rate limit.
	config.QPS, config.Burst = 500, 1000
	clients, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	if _, err := clients.Discovery().ServerVersion(); err != nil {
		return nil, fmt.Errorf("the Kubernetes API at %s does not answer: %w; check --kubeconfig", config.Host, err)
	}
	if err := checkInstalled(clients.Discovery()); err != nil {
		return nil, fmt.Errorf("the Kubernetes API at %s: %w", config.Host, err)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &kubernetes{
		Name: config.Host, Config: config, Runtime: "the cluster's",
		Dial: func(ctx context.Context, podIP string, port int) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", net.JoinHostPort(podIP, strconv.Itoa(port)))
		},
		Logs: podlog.From(func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
			return clients.CoreV1().Pods(namespace).GetLogs(pod, o).Stream(ctx)
		}),
		Keys:     &keySecret{secrets: clients.CoreV1().Secrets(s.Namespace)},
		Stop:     func(context.Context) error { return nil },
		Identity: hostname() + "_" + string(uuid.NewUUID()),
	}, nil
}

// checkInstalled makes sure that the cluster serves the platform's types. Without them the reconcilers would wait for
// what nobody brings.
func checkInstalled(api discovery.DiscoveryInterface) error {
	version := v1alpha1.GroupVersion.String()
	served, err := api.ServerResourcesForGroupVersion(version)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ask for the types of %s: %w", version, err)
	}
	names := map[string]bool{}
	if err == nil {
		for i := range served.APIResources {
			names[served.APIResources[i].Name] = true
		}
	}
	for _, plural := range v1alpha1.Plurals {
		if !names[plural] {
			return fmt.Errorf("it does not serve %s of %s: kubectl apply -f deploy/install.yaml installs the types", plural, version)
		}
	}
	return nil
}

// clusterConfig finds the cluster to use; nil means that there is none and the embedded API is wanted.
func clusterConfig(s Settings) (*rest.Config, error) {
	if s.Kubeconfig != "" {
		c, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig %s: %w", s.Kubeconfig, err)
		}
		return c, nil
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("in-cluster configuration: %w", err)
		}
		return c, nil
	}
	return nil, nil
}

func connectEmbedded(ctx context.Context, s Settings, log *slog.Logger) (*kubernetes, error) {
	p, err := embedded.Start(ctx, embedded.Options{
		DataDir: s.DataDir, Runtime: s.Runtime, ClusterID: s.ClusterID, Logger: log.With("component", "embedded"),
	})
	if err != nil {
		return nil, err
	}
	return &kubernetes{
		Name: "embedded", Config: p.Config, Kubeconfig: p.Kubeconfig, Runtime: p.Runtime,
		Dial: p.Dial, Logs: podlog.From(p.Logs), Stop: p.Stop, Failed: p.Failed(),
		Identity: "embedded",
	}, nil
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "controller"
	}
	return name
}

// newManager makes the controller-runtime manager: own Pods and Secrets only in the cache, leadership released on shutdown.
func newManager(s Settings, kube *kubernetes) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	ofPools, err := labels.NewRequirement(v1alpha1.LabelPool, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	ofEnvs, err := labels.NewRequirement(v1alpha1.LabelEnv, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, s.Namespace, "controller."+v1alpha1.GroupVersion.Group,
		resourcelock.ResourceLockConfig{Identity: kube.Identity}, kube.Config, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	mgr, err := ctrl.NewManager(kube.Config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*ofPools)},
			// Pull secrets of envs.
			&corev1.Secret{}: {Label: labels.NewSelector().Add(*ofEnvs)},
		}},
		// It counts names over the life of the process; one platform after another may use them.
		Controller:                          config.Controller{SkipNameValidation: ptr.To(true)},
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
	})
	if err != nil {
		return nil, fmt.Errorf("controller manager: %w", err)
	}
	return mgr, nil
}
