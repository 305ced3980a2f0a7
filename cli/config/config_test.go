package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"navix.sh/agentbox/cli/clierr"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "abx", "config.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPath(t *testing.T) {
	for _, c := range []struct{ xdg, home, want string }{
		{"/x", "/h", "/x/abx/config.json"},
		{"", "/h", "/h/.config/abx/config.json"},
		{"relative", "/h", "/h/.config/abx/config.json"},
	} {
		if got := Path(env("XDG_CONFIG_HOME", c.xdg, "HOME", c.home)); got != c.want {
			t.Errorf("Path(%q, %q) = %q", c.xdg, c.home, got)
		}
	}
}

// TestNoHome reads nothing and writes nothing where there is no home directory.
func TestNoHome(t *testing.T) {
	t.Setenv("HOME", "")
	if got := Path(env()); got != "" {
		t.Fatalf("Path() = %q", got)
	}
	for _, path := range []string{"", "/dev/null/.config/abx/config.json"} {
		if f, err := Load(path); err != nil || len(f.Contexts) > 0 {
			t.Errorf("Load(%q) = %v, %v", path, f, err)
		}
		if err := Edit(path, func(*File) error { return nil }); clierr.From(err).Code != clierr.InvalidConfig {
			t.Errorf("Edit(%q) = %v", path, err)
		}
	}
}

func TestMalformedIsAnErrorAndStays(t *testing.T) {
	for _, content := range []string{"", "{", "[]", `{"contexts":[]}`, `{"contexts":{"a":{"endpoint":1}}}`, `{"currentContext":{}}`} {
		path := write(t, content)
		if _, err := Load(path); clierr.From(err).Code != clierr.InvalidConfig {
			t.Errorf("Load(%q) = %v", content, err)
		}
		if err := Edit(path, func(*File) error { return nil }); err == nil {
			t.Errorf("Edit wrote over %q", content)
		}
		if got, _ := os.ReadFile(path); string(got) != content {
			t.Errorf("%q became %q", content, got)
		}
	}
}

func TestEditKeepsWhatItDoesNotKnowAndIsPrivate(t *testing.T) {
	path := write(t, `{"future":{"big":12345678901234567890},"endpoint":"https://flat","contexts":{"a":{"endpoint":"https://a","later":true}}}`)
	if err := Edit(path, func(f *File) error {
		f.Contexts["b"] = Context{Endpoint: "https://b"}
		f.Current = "b"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	var got struct {
		Future         struct{ Big json.Number }
		Endpoint       string
		CurrentContext string
		Contexts       map[string]struct {
			Endpoint string
			Later    bool
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Future.Big != "12345678901234567890" || got.Endpoint != "https://flat" || !got.Contexts["a"].Later ||
		got.Contexts["b"].Endpoint != "https://b" || got.CurrentContext != "b" {
		t.Errorf("the file became %s", data)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestConcurrentEditsLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "abx", "config.json")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := Edit(path, func(f *File) error {
				f.Contexts[fmt.Sprint(i)] = Context{Endpoint: "https://x"}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f, err := Load(path)
	if err != nil || len(f.Contexts) != 20 {
		t.Errorf("%d contexts, %v", len(f.Contexts), err)
	}
}

func TestNormalizeAddress(t *testing.T) {
	for in, want := range map[string]string{
		"https://Host.Example/":                     "https://host.example",
		"HTTPS://h:443/base//":                      "https://h/base",
		"http://h:80":                               "http://h",
		"http://h:8080/x":                           "http://h:8080/x",
		"https://h/agentbox/api/clusters":           "https://h/agentbox",
		"https://h/agentbox/api/clusters/":          "https://h/agentbox",
		"https://h/agentbox/api/clusters/{cluster}": "https://h/agentbox",
		" https://h ":                               "https://h",
		"":                                          "",
	} {
		if got := NormalizeAddress(in); got != want {
			t.Errorf("NormalizeAddress(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	for in, ok := range map[string]bool{
		"https://h": true, "http://127.0.0.1:1/x": true,
		"h": false, "ftp://h": false, "https://": false, "https://u:p@h": false, "https://h?x": false, "https://h#f": false, "https://h:x": false,
	} {
		if err := CheckAddress(in, "test"); (err == nil) != ok {
			t.Errorf("CheckAddress(%q) = %v", in, err)
		}
	}
}

func TestResolve(t *testing.T) {
	saved := &Credential{Store: "file", Address: "https://a"}
	two := &File{Current: "a", Contexts: map[string]Context{
		"a": {Endpoint: "https://a", Cluster: "c-a", Credential: saved},
		"b": {ClusterAPI: "https://b", APIKey: "old-key"},
	}}
	direct := &File{Current: "d", Contexts: map[string]Context{"d": {ClusterAPI: "https://evil", Cluster: "c-d", AuthScheme: "api-key"}}}
	type flags = map[string]string
	for _, c := range []struct {
		name     string
		file     *File
		flags    flags
		env      func(string) string
		address  string
		cluster  string
		key      string // value of APIKey
		saved    bool
		withheld bool
		code     string
	}{
		{name: "current context", file: two, env: env(), address: "https://a", cluster: "c-a", saved: true},
		{name: "named context", file: two, flags: flags{"context": "b"}, env: env(), address: "https://b", key: "old-key"},
		{name: "named context beats the environment", file: two, flags: flags{"context": "a"},
			env: env("AGENTBOX_ENDPOINT", "https://evil", "AGENTBOX_CLUSTER_API", "https://evil", "AGENTBOX_API_KEY", "k"), address: "https://a", cluster: "c-a", saved: true},
		{name: "context by variable", file: two, env: env("AGENTBOX_CONTEXT", "b"), address: "https://b", key: "old-key"},
		{name: "unknown context", file: two, flags: flags{"context": "c"}, env: env(), code: clierr.UnknownContext},
		{name: "address from elsewhere gets no saved key", file: two, env: env("AGENTBOX_ENDPOINT", "https://evil"), address: "https://evil", withheld: true},
		{name: "nor does one from a flag", file: two, flags: flags{"endpoint": "https://evil"}, env: env(), address: "https://evil", withheld: true},
		{name: "an endpoint of the environment beats a context's cluster API", file: direct,
			env: env("AGENTBOX_ENDPOINT", "https://e", "AGENTBOX_API_KEY", "k"), address: "https://e", key: "k"},
		{name: "an endpoint flag beats a context's cluster API", file: direct, flags: flags{"endpoint": "https://e", "api-key": "f"},
			env: env(), address: "https://e", key: "f"},
		{name: "a cluster API of the environment beats a context's endpoint", file: two, env: env("AGENTBOX_CLUSTER_API", "https://e"),
			address: "https://e", withheld: true},
		{name: "within one level the cluster API is meant", file: two, env: env("AGENTBOX_CLUSTER_API", "https://c", "AGENTBOX_ENDPOINT", "https://e"),
			address: "https://c", withheld: true},
		{name: "a form set to nothing", file: two, flags: flags{"cluster-api": ""}, env: env("AGENTBOX_CLUSTER_API", "https://c"),
			address: "https://a", cluster: "c-a", saved: true},
		{name: "a cluster given with the address", file: two, env: env("AGENTBOX_ENDPOINT", "https://e", "AGENTBOX_CLUSTER", "x"),
			address: "https://e", cluster: "x", withheld: true},
		{name: "same address, written differently", file: two, env: env("AGENTBOX_ENDPOINT", "https://A:443/"), address: "https://a", cluster: "c-a", saved: true},
		{name: "key from the environment", file: two, env: env("AGENTBOX_API_KEY", "k"), address: "https://a", cluster: "c-a", key: "k"},
		{name: "flag beats the environment", file: two, flags: flags{"api-key": "f", "cluster": ""}, env: env("AGENTBOX_API_KEY", "k", "AGENTBOX_CLUSTER", "x"), address: "https://a", key: "f"},
		{name: "endpoint flag beats a cluster API in the environment", file: &File{}, flags: flags{"endpoint": "https://e"},
			env: env("AGENTBOX_CLUSTER_API", "https://c"), address: "https://e"},
		{name: "several and none current", file: &File{Contexts: two.Contexts}, env: env(), code: clierr.NotConfigured},
		{name: "several, none current, address given", file: &File{Contexts: two.Contexts}, env: env("AGENTBOX_ENDPOINT", "https://e"), address: "https://e"},
		{name: "the flat form of older releases", file: &File{Flat: Context{Endpoint: "https://flat", APIKey: "k"}}, env: env(), address: "https://flat", key: "k"},
		{name: "bad scheme", file: two, flags: flags{"auth-scheme": "basic"}, env: env(), code: clierr.InvalidValue},
		{name: "bad address", file: two, flags: flags{"endpoint": "console"}, env: env(), code: clierr.InvalidValue},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Resolve(c.file, c.flags, c.env)
			if c.code != "" {
				if clierr.From(err).Code != c.code {
					t.Fatalf("error %v, want %s", err, c.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.Address() != c.address || s.Cluster.Value != c.cluster || s.APIKey.Value != c.key ||
				(s.Saved != nil) != c.saved || (s.Withheld != "") != c.withheld {
				t.Errorf("got address %q cluster %q key %q saved %v withheld %q", s.Address(), s.Cluster.Value, s.APIKey.Value, s.Saved != nil, s.Withheld)
			}
		})
	}
}

func TestRequire(t *testing.T) {
	if err := (Settings{}).Require("p"); clierr.From(err).Exit != clierr.ExitUnreachable {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"currentContext":"a","contexts":{"a":{"endpoint":"https://a"}},"x":1}`))
	f.Add([]byte(`{"endpoint":"https://a","apiKey":"k"}`))
	f.Add([]byte(`{"contexts":{"a":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := &File{Contexts: map[string]Context{}}
		if file.decode(data) != nil {
			return
		}
		out, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		again := &File{Contexts: map[string]Context{}}
		if err := again.decode(out); err != nil {
			t.Errorf("%s was written and cannot be read: %v", out, err)
		}
	})
}
