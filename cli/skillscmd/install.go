package skillscmd

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/skills"
)

// hosts are the agents whose skill folders are known, relative to the home folder.
var hosts = map[string]string{
	"claude-code": ".claude/skills",
	"codex":       ".agents/skills",
	"opencode":    ".config/opencode/skills",
}

// marker stands in the front matter of every skill of ours; a file without it belongs to somebody else.
const marker = `kind: "agentbox-skill"`

func hostNames() []string { return slices.Sorted(maps.Keys(hosts)) }

func targetDir(getenv func(string) string, dir, host string) (string, error) {
	if dir != "" && host != "" {
		return "", clierr.New(clierr.InvalidValue, "--dir and --for exclude each other: choose one")
	}
	if dir != "" {
		return dir, nil
	}
	sub := ".agents/skills"
	if host != "" {
		known, ok := hosts[host]
		if !ok {
			return "", clierr.New(clierr.InvalidValue, "--for %q: no such agent is known", host).Choices(hostNames(), "").Hint("abx skills install --dir DIR")
		}
		sub = known
	}
	h, err := home(getenv)
	if err != nil {
		return "", err
	}
	return filepath.Join(h, filepath.FromSlash(sub)), nil
}

// Installed says what an installation did.
type Installed struct {
	Dir       string   `json:"dir"`
	Written   []string `json:"written"`
	Unchanged []string `json:"unchanged"`
}

// Install writes every skill to dir/<name>/SKILL.md, each in one step. A file there that is not one of ours is refused
// before anything is written.
func Install(dir string) (Installed, error) {
	done := Installed{Dir: dir, Written: []string{}, Unchanged: []string{}}
	all := skills.All()
	current := make([][]byte, len(all))
	for i, s := range all {
		raw, err := os.ReadFile(file(dir, s.Name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return done, unwritable(dir, err)
		case !bytes.Contains(raw, []byte(marker)):
			return done, clierr.New(clierr.Conflict, "%s is not a skill of abx and was left alone", file(dir, s.Name)).
				Hint("move it away, or choose another folder: abx skills install --dir DIR")
		}
		current[i] = raw
	}
	for i, s := range all {
		if string(current[i]) == s.Text {
			done.Unchanged = append(done.Unchanged, s.Name)
			continue
		}
		if err := writeFile(file(dir, s.Name), s.Text); err != nil {
			return done, unwritable(dir, err)
		}
		done.Written = append(done.Written, s.Name)
	}
	return done, nil
}

func file(dir, name string) string { return filepath.Join(dir, name, "SKILL.md") }

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".SKILL.md.*")
	if err != nil {
		return err
	}
	_, err = strings.NewReader(text).WriteTo(tmp)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

func unwritable(dir string, err error) error {
	return clierr.New(clierr.InvalidValue, "cannot write the skills to %s: %v", dir, err).Because(err).
		Hint("choose another folder: abx skills install --dir DIR")
}
