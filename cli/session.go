package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/cli/credential"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// session is a connection to the deployment that a command talks to.
type session struct {
	app      *App
	settings config.Settings
	deploy   *client.Client // at the deployment's address
	cluster  string         // chosen or given; empty in direct mode without --cluster
	timeout  time.Duration  // as given; zero when it was not

	features map[string]bool // of the server; nil until asked for
	legacy   bool            // the server has no /version
}

// connect reads the configuration and opens a session. It sends nothing.
func (a *App) connect(cmd *cobra.Command) (*session, error) {
	settings, path, err := a.settings(cmd)
	if err != nil {
		return nil, err
	}
	if err := settings.Require(path); err != nil {
		return nil, err
	}
	s := &session{app: a, settings: settings, cluster: settings.Cluster.Value}
	if from := settings.FromContext(settings.Cluster); from != "" {
		a.pinned = "the cluster " + s.cluster + " is that of the " + from
	}
	if settings.Timeout.Value != "" {
		if s.timeout, err = parseTimeout(settings.Timeout.Value); err != nil {
			return nil, clierr.New(clierr.InvalidValue, "the timeout %q (%s) %v", settings.Timeout.Value, settings.Timeout.Source, err)
		}
	}
	key, err := a.key(cmd, settings, path)
	if err != nil {
		return nil, err
	}
	request := s.timeout
	if wait, err := cmd.Flags().GetBool("wait"); err == nil && wait {
		request = 0 // the time given is for the whole wait
	}
	s.deploy, err = client.New(client.Options{
		Base: settings.Address(), Key: key, KeyFrom: keySource(cmd, settings), Bearer: bearer(settings), CAFile: settings.CAFile.Value, Timeout: request,
		UserAgent: "abx/" + Version + " (" + runtime.GOOS + "; " + runtime.GOARCH + ")",
		Session:   a.Getenv("AGENTBOX_SESSION_ID"), Getenv: a.Getenv,
	})
	return s, err
}

// open opens a session and the API of the cluster that is meant. The caller closes the session.
func (a *App) open(cmd *cobra.Command) (*session, *client.Client, error) {
	s, err := a.connect(cmd)
	if err != nil {
		return nil, nil, err
	}
	api, err := s.api(cmd.Context())
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, api, nil
}

func bearer(s config.Settings) bool {
	if s.AuthScheme.Value != "" {
		return s.AuthScheme.Value == "bearer"
	}
	return !s.Direct()
}

// settings resolves the flags that were given, the environment and the saved contexts.
func (a *App) settings(cmd *cobra.Command) (config.Settings, string, error) {
	path := a.configPath()
	file, err := config.Load(path)
	if err != nil {
		return config.Settings{}, path, err
	}
	flags := map[string]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.ContainsFunc(config.List, func(s config.Setting) bool { return s.Flag == f.Name }) {
			flags[f.Name] = f.Value.String()
		}
	})
	settings, err := config.Resolve(file, flags, a.Getenv)
	return settings, path, err
}

// key returns the credential to send; empty when there is none, which a server may accept for what is public.
func (a *App) key(cmd *cobra.Command, settings config.Settings, path string) (string, error) {
	if fromStdin, _ := cmd.Flags().GetBool("api-key-stdin"); fromStdin {
		return a.readKey()
	}
	if key := settings.APIKey.Value; key != "" {
		return key, credential.Check(key)
	}
	if settings.Saved != nil {
		store, err := credential.New(path, a.Getenv)
		if err != nil {
			return "", err
		}
		return store.Load(cmd.Context(), settings.Context.Value, settings.Saved)
	}
	return "", clierr.New(clierr.Unauthenticated, "there is no API key for %s", settings.Address()).Hint(settings.Withheld,
		"abx context set <name> --endpoint "+settings.Address()+" --api-key-stdin < KEYFILE",
		"or set AGENTBOX_API_KEY, or pass --api-key-stdin")
}

func keySource(cmd *cobra.Command, s config.Settings) string {
	if fromStdin, _ := cmd.Flags().GetBool("api-key-stdin"); fromStdin {
		return "standard input"
	}
	return s.APIKey.Source
}

// readKey reads a key from standard input.
func (a *App) readKey() (string, error) {
	if output.IsTerminal(a.In) {
		return "", clierr.New(clierr.MissingValue, "--api-key-stdin reads a pipe, and standard input is a terminal").
			Hint("abx … --api-key-stdin < KEYFILE", "or set AGENTBOX_API_KEY")
	}
	data, err := io.ReadAll(io.LimitReader(a.In, 64<<10))
	if err != nil {
		return "", clierr.New(clierr.InvalidValue, "the key cannot be read from standard input: %v", err).Because(err)
	}
	key := strings.TrimSpace(string(data))
	return key, credential.Check(key)
}

func (s *session) close() { s.deploy.Close() }

// api returns a client at the API of the cluster that the address belongs to, choosing
// the cluster when there is only one.
func (s *session) api(ctx context.Context) (*client.Client, error) {
	if s.settings.Direct() {
		return s.direct(ctx)
	}
	if s.cluster == "" {
		ids, err := s.clusterIDs(ctx)
		if err != nil {
			return nil, err
		}
		switch len(ids) {
		case 0:
			return nil, clierr.New(clierr.NotFound, "%s has no cluster that this key can reach", s.settings.Address()).Hint("abx whoami", "abx clusters")
		case 1:
			s.cluster = ids[0]
		default:
			return nil, clierr.New(clierr.AmbiguousCluster, "%s has several clusters", s.settings.Address()).Choices(ids, "").
				Hint("name one with --cluster, or set AGENTBOX_CLUSTER")
		}
	}
	return s.at(s.cluster), nil
}

// at returns a client at the API of one cluster behind the console.
func (s *session) at(cluster string) *client.Client {
	return s.deploy.At(s.settings.Address() + "/api/clusters/" + url.PathEscape(cluster) + "/v1")
}

// direct returns the client of a cluster's own API. A cluster that was asked for by name must be the one
// that answers: rows of another one under its name would be wrong without looking wrong.
func (s *session) direct(ctx context.Context) (*client.Client, error) {
	api := s.deploy.At(s.settings.Address() + "/v1")
	if s.cluster == "" {
		return api, nil
	}
	served, err := servedCluster(ctx, api)
	if err != nil {
		return nil, err
	}
	if served != s.cluster {
		return nil, clierr.New(clierr.InvalidValue, "%s is the API of cluster %q and not of %q (%s)",
			s.settings.Address(), served, s.cluster, s.settings.Cluster.Source).
			Choices([]string{served}, "").Hint(s.withoutCluster() + ", or use the console's address with --endpoint to reach other clusters")
	}
	return api, nil
}

// withoutCluster says how to name no cluster, which depends on where its name came from.
func (s *session) withoutCluster() string {
	switch from := s.settings.Cluster.Source; {
	case s.settings.FromContext(s.settings.Cluster) != "" && s.settings.Context.Value != "":
		return "abx context set " + s.settings.Context.Value + " --cluster ''"
	case strings.HasPrefix(from, "environment "):
		return "unset " + strings.TrimPrefix(from, "environment ")
	}
	return "leave --cluster out"
}

type clusterRow struct {
	ID    string `json:"id"`
	Local bool   `json:"local"`
}

func servedCluster(ctx context.Context, api *client.Client) (string, error) {
	rows, err := listClusters(ctx, api, "/clusters")
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		if row.Local || len(rows) == 1 {
			return row.ID, nil
		}
	}
	return "", clierr.New(clierr.BadResponse, "the API does not say which cluster it serves").Hint("name no cluster: without one, whatever it serves is meant")
}

func (s *session) clusterIDs(ctx context.Context) ([]string, error) {
	rows, err := listClusters(ctx, s.deploy, "/api/clusters")
	if err != nil {
		var e *clierr.Error
		if errors.As(err, &e) && e.Status == http.StatusNotFound {
			e.Hint("if this is one cluster's own API and not a console, use --cluster-api instead of --endpoint")
		}
		return nil, err
	}
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids, nil
}

func listClusters(ctx context.Context, api *client.Client, path string) ([]clusterRow, error) {
	answer, err := api.Do(ctx, client.Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return nil, err
	}
	var list struct {
		Clusters []clusterRow `json:"clusters"`
	}
	if err := json.Unmarshal(answer.Body, &list); err != nil {
		return nil, clierr.New(clierr.BadResponse, "the list of clusters has another shape than this release knows: %v", err).Because(err)
	}
	return list.Clusters, nil
}

// Features of the server that older deployments lack (VersionInfo.features).
const (
	featureDryRun    = "dry-run"
	featureETag      = "etag"
	featureWatch     = "watch"
	featureLogFollow = "log-follow"
)

// has reports whether the server has a feature. A server without /version is an older one and has none.
func (s *session) has(ctx context.Context, api *client.Client, feature string) (bool, error) {
	if s.features == nil {
		answer, err := api.Do(ctx, client.Request{Method: http.MethodGet, Path: "/version"})
		s.features = map[string]bool{}
		if err != nil {
			var e *clierr.Error
			if errors.As(err, &e) && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusNotImplemented) {
				s.legacy = true
				return false, nil
			}
			s.features = nil
			return false, err
		}
		var info struct {
			Features []string `json:"features"`
		}
		if err := json.Unmarshal(answer.Body, &info); err != nil {
			s.legacy = true
			return false, nil
		}
		for _, f := range info.Features {
			s.features[f] = true
		}
	}
	return s.features[feature], nil
}

// require refuses, before anything is sent, what the server does not serve.
func (s *session) require(ctx context.Context, api *client.Client, feature, flag string) error {
	ok, err := s.has(ctx, api, feature)
	if err != nil || ok {
		return err
	}
	why := "its /version does not list " + feature
	if s.legacy {
		why = "it is an older deployment without /version"
	}
	return clierr.New(clierr.Unsupported, "%s does not serve %s: %s", s.settings.Address(), flag, why).
		Hint("leave " + flag + " out; nothing was sent")
}

// page is the console page of the address; empty when there is none to link to, as
// with a cluster's own API or a controller that answers in a console's place. It is
// asked after the first answer.
func (s *session) page(addr registry.Address) string {
	if s.settings.Direct() || s.deploy.Own() {
		return ""
	}
	if path := addr.ConsolePath(s.cluster); path != "" {
		return s.settings.Address() + "/" + path
	}
	return ""
}
