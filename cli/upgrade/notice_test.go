package upgrade

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// person runs Notice as a person's command would, with a clock of its own.
type person struct {
	t       *testing.T
	f       *fixture
	env     map[string]string
	now     time.Time
	options NoticeOptions
	looks   int
}

func newPerson(t *testing.T, current string) *person {
	t.Helper()
	p := &person{t: t, f: newFixture(t, "v1.3.0"), env: map[string]string{"XDG_CACHE_HOME": t.TempDir()}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	p.options = NoticeOptions{Current: current, Terminal: true}
	return p
}

func (p *person) command() string {
	p.t.Helper()
	var out bytes.Buffer
	o := p.options
	o.Err, o.Now = &out, func() time.Time { return p.now }
	o.Getenv = func(name string) string { return p.env[name] }
	o.Source = func() (Source, error) {
		p.looks++
		return NewSource(func(name string) string {
			return map[string]string{"AGBX_CLI_BASE": p.f.url, "AGBX_CLI_PUBLIC_KEY": p.f.key}[name]
		}, nil)
	}
	Notice(context.Background(), o)
	return out.String()
}

func TestNoticeOnceADay(t *testing.T) {
	p := newPerson(t, "v1.2.0")
	if got := p.command(); !strings.Contains(got, "abx v1.3.0 is available, this is v1.2.0: abx upgrade") {
		t.Errorf("it said %q", got)
	}
	p.now = p.now.Add(23 * time.Hour)
	if got := p.command(); got != "" || p.looks != 1 {
		t.Errorf("a second time within the day: %q, %d looks", got, p.looks)
	}
	p.now = p.now.Add(2 * time.Hour)
	if got := p.command(); got == "" {
		t.Error("the next day it said nothing")
	}
	cache := filepath.Join(p.env["XDG_CACHE_HOME"], "abx")
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 1 {
		t.Errorf("the cache holds %v, %v", entries, err)
	}
}

func TestNoNotice(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *person)
		looks  int
	}{
		"no terminal":          {func(p *person) { p.options.Terminal = false }, 0},
		"output for a program": {func(p *person) { p.options.JSON = true }, 0},
		"in CI":                {func(p *person) { p.env["CI"] = "true" }, 0},
		"turned off":           {func(p *person) { p.env["AGBX_NO_UPDATE_NOTICE"] = "1" }, 0},
		"a build from source":  {func(p *person) { p.options.Current = "dev" }, 0},
		"one after a tag":      {func(p *person) { p.options.Current = "v1.2.0-4-g98732e0" }, 0},
		"nowhere to remember":  {func(p *person) { p.env = nil }, 0},
		"cache cannot be made": {func(p *person) { p.env["XDG_CACHE_HOME"] = p.f.key }, 0},
		"this is the latest":   {func(p *person) { p.options.Current = "v1.3.0" }, 1},
		"this is newer":        {func(p *person) { p.options.Current = "v1.10.0" }, 1},
		"no version":           {func(p *person) { p.f.files["VERSION"] = []byte("<html>v9.9.9") }, 1},
		"too long":             {func(p *person) { p.f.files["VERSION"] = []byte("v9.9.9-" + strings.Repeat("a", 100)) }, 1},
		"offline":              {func(p *person) { p.f.url = "http://127.0.0.1:1" }, 1},
		"no address":           {func(p *person) { p.f.url = "" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPerson(t, "v1.2.0")
			c.change(p)
			for range 2 {
				if got := p.command(); got != "" {
					t.Errorf("it said %q", got)
				}
			}
			if p.looks != c.looks {
				t.Errorf("it looked %d times in two commands, want %d", p.looks, c.looks)
			}
		})
	}
}

// A server that takes the connection and says nothing holds a command no longer than the budget.
func TestNoticeDoesNotWait(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p := newPerson(t, "v1.2.0")
	p.f.url = "http://" + silent.Addr().String()
	done := make(chan string)
	go func() { done <- p.command() }()
	select {
	case got := <-done:
		if got != "" {
			t.Errorf("it said %q", got)
		}
	case <-time.After(30 * time.Second): // a hundred times the budget: only a hang meets it
		t.Fatal("it hangs")
	}
}

func TestNoticeWithADamagedCache(t *testing.T) {
	for name, content := range map[string]string{"no JSON": "{", "from the future": `{"at":"2031-01-01T00:00:00Z"}`} {
		t.Run(name, func(t *testing.T) {
			p := newPerson(t, "v1.2.0")
			write(t, filepath.Join(p.env["XDG_CACHE_HOME"], "abx", "upgrade.json"), content)
			if p.command() == "" || p.command() != "" {
				t.Error("want one notice, and none again")
			}
		})
	}
}
