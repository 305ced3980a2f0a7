// Package skills carries the nine skills that teach an agent the platform. Their text is in src/, where columns, closed
// sets and exit codes are placeholders; `go generate` fills those in from the registry and writes dist/, which is what
// the binary, the installer and the plugin ship.
package skills

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:generate go run ./render -src src -out dist,../plugin/skills

//go:embed dist
var files embed.FS

// Skill is one SKILL.md.
type Skill struct {
	Name        string // folder name, for instance abx-common
	Description string // when to read it: the description of the front matter
	Text        string // the whole file
}

// All returns the skills, abx-common first and the rest by name.
func All() []Skill {
	names, err := fs.Glob(files, "dist/*/SKILL.md")
	if err != nil {
		panic(err) // the pattern is constant
	}
	all := make([]Skill, 0, len(names))
	for _, name := range names {
		raw, err := files.ReadFile(name)
		if err != nil {
			panic(err) // the file was found a moment ago in an embedded file system
		}
		all = append(all, Skill{Name: path.Base(path.Dir(name)), Description: description(string(raw)), Text: string(raw)})
	}
	slices.SortStableFunc(all, func(a, b Skill) int {
		switch {
		case a.Name == Common && b.Name != Common:
			return -1
		case b.Name == Common && a.Name != Common:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

// Common is the skill that every other one defers to.
const Common = "abx-common"

// Find returns the skill of that name.
func Find(name string) (Skill, bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return Skill{}, false
}

// description reads the front matter's description: the renderer writes it on one line, in double quotes.
func description(text string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "description: \""); ok {
			return strings.TrimSuffix(strings.TrimSpace(value), "\"")
		}
	}
	return ""
}
