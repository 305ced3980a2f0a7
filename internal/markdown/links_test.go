package markdown

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinks: every relative link of the project's pages leads to a file, and to a heading that is there.
func TestLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := map[string]*Page{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules" || d.Name() == "dist" || d.Name() == "testdata" || d.Name() == "bin"):
			if path == filepath.Join(root, "skills", "dist") {
				return nil
			}
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			pages[path], err = Read(path)
		}
		return err
	})
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages found, %v", len(pages), err)
	}
	for path, p := range pages {
		for _, l := range p.Links {
			if strings.Contains(l.Target, "://") || strings.HasPrefix(l.Target, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(l.Target, "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s:%d: %s leads nowhere", path, l.Line, l.Target)
				continue
			}
			if anchor != "" && (pages[target] == nil || !pages[target].Anchors[anchor]) {
				t.Errorf("%s:%d: %s has no heading %s", path, l.Line, target, anchor)
			}
		}
	}
}
