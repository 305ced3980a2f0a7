package config

import (
	"fmt"
	"slices"

	"navix.sh/agentbox/cli/clierr"
)

// Value is a setting and where it came from; Source is empty when it is not set.
type Value struct {
	Value  string `json:"value,omitempty"`
	Source string `json:"source,omitempty"`
}

// Settings is what holds for one command.
type Settings struct {
	Context    Value // the saved context that was chosen
	Endpoint   Value
	ClusterAPI Value
	APIKey     Value // only from a flag, the environment or an older file; Saved otherwise
	Cluster    Value
	AuthScheme Value
	CAFile     Value
	Timeout    Value
	// Saved says where the context's key is kept when that key holds.
	Saved *Credential
	// Withheld says why the context's saved key is not used; empty when it is, or there is none.
	Withheld string
}

// Direct reports whether one cluster's own API is addressed and not a console.
func (s Settings) Direct() bool { return s.ClusterAPI.Value != "" }

// Address is where requests go, normalised.
func (s Settings) Address() string {
	if s.Direct() {
		return NormalizeAddress(s.ClusterAPI.Value)
	}
	return NormalizeAddress(s.Endpoint.Value)
}

// Setting describes one setting for help and agent-context.
type Setting struct {
	Flag string // without dashes
	Env  string
	Help string
}

// List is every setting that has both a flag and an environment variable.
var List = []Setting{
	{"context", "AGENTBOX_CONTEXT", "which saved deployment"},
	{"endpoint", "AGENTBOX_ENDPOINT", "address of the console; it reaches every cluster"},
	{"cluster-api", "AGENTBOX_CLUSTER_API", "address of one cluster's own API, instead of the console"},
	{"api-key", "AGENTBOX_API_KEY", "the key (prefer the variable: a command line is visible to others)"},
	{"cluster", "AGENTBOX_CLUSTER", "which cluster behind the console"},
	{"auth-scheme", "AGENTBOX_AUTH_SCHEME", "header that carries the key, instead of the one that follows from the address"},
	{"ca-file", "AGENTBOX_CA_FILE", "PEM file of certificate authorities, in addition to the system's"},
	{"timeout", "AGENTBOX_TIMEOUT", "longest time for one request, e.g. 30s; with --wait, --watch or --follow for all of it"},
}

// AuthSchemes are the values of auth-scheme.
var AuthSchemes = []string{"api-key", "bearer"}

// Resolve decides every setting: a flag, then the environment, then the context. A context named by --context stands above
// the environment, because it was asked for by name. What a context holds (its key, cluster, header and authorities) was
// saved for its address and holds for no other.
func Resolve(f *File, flags map[string]string, getenv func(string) string) (Settings, error) {
	var s Settings
	ctx, err := choose(f, flags, getenv, &s)
	if err != nil {
		return s, err
	}
	_, named := flags["context"]
	s.decideAddress(ctx, flags, getenv)
	held := ctx
	if saved := ctx.Address(); saved != "" && saved != s.Address() {
		held = Context{}
	}
	pick := func(setting, saved string) Value {
		env := List[slices.IndexFunc(List, func(x Setting) bool { return x.Flag == setting })].Env
		fromContext := Value{saved, contextSource(s.Context.Value)}
		if v, ok := flags[setting]; ok {
			return Value{v, "flag --" + setting}
		}
		if named && saved != "" {
			return fromContext
		}
		if v := getenv(env); v != "" {
			return Value{v, "environment " + env}
		}
		if saved != "" {
			return fromContext
		}
		return Value{}
	}
	s.Cluster = pick("cluster", held.Cluster)
	s.AuthScheme = pick("auth-scheme", held.AuthScheme)
	s.CAFile = pick("ca-file", held.CAFile)
	s.Timeout = pick("timeout", "")
	s.APIKey = pick("api-key", "")
	if s.AuthScheme.Value != "" && !slices.Contains(AuthSchemes, s.AuthScheme.Value) {
		return s, clierr.New(clierr.InvalidValue, "the auth scheme %q (%s) does not exist", s.AuthScheme.Value, s.AuthScheme.Source).
			Choices(AuthSchemes, "")
	}
	for _, v := range []Value{s.Endpoint, s.ClusterAPI} {
		if v.Value != "" {
			if err := CheckAddress(v.Value, v.Source); err != nil {
				return s, err
			}
		}
	}
	bindKey(&s, ctx, named)
	return s, nil
}

// decideAddress decides where requests go: the flags, then a context named by --context, then the environment, then the
// context. An endpoint and a cluster's API are two forms of one address: the first level that names either of them decides,
// and within it the cluster's API outranks the endpoint. A form that a flag sets to nothing is taken from no level.
func (s *Settings) decideAddress(ctx Context, flags map[string]string, getenv func(string) string) {
	type level struct{ endpoint, clusterAPI Value }
	given := level{Value{flags["endpoint"], "flag --endpoint"}, Value{flags["cluster-api"], "flag --cluster-api"}}
	environment := level{Value{getenv("AGENTBOX_ENDPOINT"), "environment AGENTBOX_ENDPOINT"},
		Value{getenv("AGENTBOX_CLUSTER_API"), "environment AGENTBOX_CLUSTER_API"}}
	source := contextSource(s.Context.Value)
	saved := level{Value{ctx.Endpoint, source}, Value{ctx.ClusterAPI, source}}
	levels := []level{given, environment, saved}
	if _, named := flags["context"]; named {
		levels = []level{given, saved, environment}
	}
	_, endpointGiven := flags["endpoint"]
	_, clusterAPIGiven := flags["cluster-api"]
	for i, l := range levels {
		below := i > 0
		switch {
		case l.clusterAPI.Value != "" && !(below && clusterAPIGiven):
			s.ClusterAPI = l.clusterAPI
			return
		case l.endpoint.Value != "" && !(below && endpointGiven):
			s.Endpoint = l.endpoint
			return
		}
	}
}

// bindKey takes the context's key into use when the address is the one it was saved for.
func bindKey(s *Settings, ctx Context, named bool) {
	saved := ctx.APIKey != "" || ctx.Credential != nil
	if !saved || s.APIKey.Value != "" && !(named && s.APIKey.Source != "flag --api-key") {
		return
	}
	bound := ctx.Address()
	if ctx.Credential != nil {
		bound = ctx.Credential.Address
	}
	if bound != s.Address() {
		source := s.Endpoint.Source
		if s.Direct() {
			source = s.ClusterAPI.Source
		}
		s.Withheld = fmt.Sprintf("the key saved with the context is for %s, and the address here is %s (%s)", bound, s.Address(), source)
		return
	}
	s.APIKey = Value{ctx.APIKey, contextSource(s.Context.Value)}
	s.Saved = ctx.Credential
}

// FromContext names the context that v was saved with, as contextSource does; empty when it came from elsewhere.
func (s Settings) FromContext(v Value) string {
	if v.Value != "" && v.Source == contextSource(s.Context.Value) {
		return v.Source
	}
	return ""
}

func contextSource(name string) string {
	if name == "" {
		return "configuration file"
	}
	return "context " + name
}

// choose picks the context: by name, the current one, or the only one.
func choose(f *File, flags map[string]string, getenv func(string) string, s *Settings) (Context, error) {
	if name, ok := flags["context"]; ok && name != "" {
		s.Context = Value{name, "flag --context"}
		return f.Get(name)
	}
	if name := getenv("AGENTBOX_CONTEXT"); name != "" {
		s.Context = Value{name, "environment AGENTBOX_CONTEXT"}
		return f.Get(name)
	}
	if f.Current != "" {
		if c, ok := f.Contexts[f.Current]; ok {
			s.Context = Value{f.Current, "current context"}
			return c, nil
		}
	}
	names := f.Names()
	switch {
	case len(names) == 1:
		s.Context = Value{names[0], "the only context"}
		return f.Contexts[names[0]], nil
	case len(names) > 1 && addressElsewhere(flags, getenv):
		return Context{}, nil
	case len(names) > 1:
		e := clierr.New(clierr.NotConfigured, "there are several contexts and none is current").Choices(names, "")
		return Context{}, e.Hint("name one with --context, or choose one with: abx context use <name>")
	}
	return f.Flat, nil
}

// addressElsewhere reports whether the address comes without a context's help.
func addressElsewhere(flags map[string]string, getenv func(string) string) bool {
	return flags["endpoint"] != "" || flags["cluster-api"] != "" ||
		getenv("AGENTBOX_ENDPOINT") != "" || getenv("AGENTBOX_CLUSTER_API") != ""
}

// Require returns an error when there is no address to send anything to.
func (s Settings) Require(path string) error {
	if s.Address() != "" {
		return nil
	}
	return clierr.New(clierr.NotConfigured, "no deployment is configured").
		Hint("abx context set <name> --endpoint URL --api-key-stdin < KEYFILE",
			"or set AGENTBOX_ENDPOINT and AGENTBOX_API_KEY, or pass --endpoint",
			contextsKept(path))
}

func contextsKept(path string) string {
	if path == "" {
		return noHome + "; to save contexts, set HOME or XDG_CONFIG_HOME"
	}
	return "contexts are kept in " + path
}
