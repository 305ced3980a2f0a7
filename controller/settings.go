package controller

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Settings is everything that can be chosen about a controller. Each field is a flag and an environment variable; the
// table in docs/operations.md is held to this list by a test.
type Settings struct {
	Kubeconfig    string
	DataDir       string
	Listen        string
	ClusterID     string
	ClusterName   string
	Domain        string
	PublicURL     string
	Runtime       string
	Namespace     string
	Catalogue     string
	TLSCert       string
	TLSKey        string
	TLSSelfSigned bool
	LogLevel      string
	LogFormat     string
	ShutdownGrace time.Duration
	PrintVersion  bool
}

// setting ties one field to its flag, its environment variable and its help line.
type setting struct {
	Flag, Env, Default, Help string
	bind                     func(fs *flag.FlagSet, name, help string)
}

func (s *Settings) table() []setting {
	str := func(p *string, def string) (string, func(*flag.FlagSet, string, string)) {
		return def, func(fs *flag.FlagSet, name, help string) { fs.StringVar(p, name, def, help) }
	}
	row := func(name, env, help string, p *string, def string) setting {
		d, bind := str(p, def)
		return setting{Flag: name, Env: env, Default: d, Help: help, bind: bind}
	}
	return []setting{
		row("kubeconfig", "AGENTBOX_KUBECONFIG", "use this cluster instead of the embedded Kubernetes API; inside a cluster its own is used", &s.Kubeconfig, ""),
		row("data-dir", "AGENTBOX_DATA_DIR", "where the embedded platform and client.env live", &s.DataDir, defaultDataDir()),
		row("listen", "AGENTBOX_LISTEN", "address of the one port; port 0 takes a free one", &s.Listen, "127.0.0.1:8480"),
		row("cluster-id", "AGENTBOX_CLUSTER_ID", "id of this cluster, as in spec.clusters[].clusterID of an env", &s.ClusterID, "local"),
		row("cluster-name", "AGENTBOX_CLUSTER_NAME", "name shown for this cluster; the id when empty", &s.ClusterName, ""),
		row("domain", "AGENTBOX_DOMAIN", "serve sandboxes also as <port>-<id>.<domain>, and the E2B API as api.<domain>", &s.Domain, ""),
		row("public-url", "AGENTBOX_PUBLIC_URL", "address that clients use, when it is not the one of the request", &s.PublicURL, ""),
		row("runtime", "AGENTBOX_RUNTIME", "embedded only: auto, namespaces, or an OCI runtime on the PATH: runsc, runc, crun", &s.Runtime, "auto"),
		row("namespace", "AGENTBOX_NAMESPACE", "namespace of the platform's own objects", &s.Namespace, "agentbox-system"),
		row("catalogue", "AGENTBOX_CATALOGUE", "YAML file with instance types, quotas and feature gates", &s.Catalogue, ""),
		row("tls-cert", "AGENTBOX_TLS_CERT", "certificate file; serve TLS", &s.TLSCert, ""),
		row("tls-key", "AGENTBOX_TLS_KEY", "key file of --tls-cert", &s.TLSKey, ""),
		{Flag: "tls-self-signed", Env: "AGENTBOX_TLS_SELF_SIGNED", Default: "false",
			Help: "serve TLS with a certificate for --domain from an own CA in the data directory",
			bind: func(fs *flag.FlagSet, name, help string) { fs.BoolVar(&s.TLSSelfSigned, name, false, help) }},
		row("log-level", "AGENTBOX_LOG_LEVEL", "debug, info, warn or error", &s.LogLevel, "info"),
		row("log-format", "AGENTBOX_LOG_FORMAT", "text or json", &s.LogFormat, "text"),
		{Flag: "shutdown-grace", Env: "AGENTBOX_SHUTDOWN_GRACE", Default: "10s",
			Help: "how long requests in flight may take after a signal",
			bind: func(fs *flag.FlagSet, name, help string) {
				fs.DurationVar(&s.ShutdownGrace, name, 10*time.Second, help)
			}},
	}
}

func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "agentbox")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "agentbox")
	}
	return filepath.Join(home, ".local", "share", "agentbox")
}

// ParseSettings reads args (without the program's name) and then the environment for what no flag set.
// It returns flag.ErrHelp after printing help to out.
func ParseSettings(args []string, env func(string) (string, bool), out io.Writer) (Settings, error) {
	var s Settings
	fs := flag.NewFlagSet("controller", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	rows := s.table()
	for _, r := range rows {
		r.bind(fs, r.Flag, r.Help)
	}
	fs.BoolVar(&s.PrintVersion, "version", false, "print the version and exit")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printSettings(out, rows)
			return s, err
		}
		return s, fmt.Errorf("%w; see controller --help", err)
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: the controller takes flags only; see controller --help", fs.Arg(0))
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, r := range rows {
		if v, ok := env(r.Env); ok && v != "" && !given[r.Flag] {
			if err := fs.Set(r.Flag, v); err != nil {
				return s, fmt.Errorf("%s=%q: %w", r.Env, v, err)
			}
		}
	}
	return s, s.check()
}

func (s *Settings) check() error {
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return fmt.Errorf("--tls-cert and --tls-key go together: give both or neither")
	}
	if s.TLSSelfSigned && s.TLSCert != "" {
		return fmt.Errorf("--tls-self-signed and --tls-cert exclude each other: choose one")
	}
	if s.ClusterID == "" || strings.ContainsAny(s.ClusterID, "/.: ") {
		return fmt.Errorf("--cluster-id %q: want a name without '/', '.', ':' or blanks, for instance \"local\"", s.ClusterID)
	}
	return nil
}

func printSettings(out io.Writer, rows []setting) {
	fmt.Fprintln(out, "controller serves AgentBox: native API, E2B API and gateway on one port.")
	fmt.Fprintln(out, "\nWithout --kubeconfig and outside a cluster it brings its own Kubernetes API and runs sandboxes on this machine.")
	fmt.Fprintln(out, "\nFlags (environment variable, default):")
	for _, r := range rows {
		def := r.Default
		if def == "" {
			def = "none"
		}
		fmt.Fprintf(out, "  --%-16s %s\n%20s(%s, %s)\n", r.Flag, r.Help, "", r.Env, def)
	}
	fmt.Fprintf(out, "  --%-16s %s\n", "version", "print the version and exit")
}
