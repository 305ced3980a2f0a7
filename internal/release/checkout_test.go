package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// checkout copies what a release of abx is built from to a folder of its own.
func checkout(t *testing.T, name string) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	files := append(sources(t, root), "go.mod", "go.sum", "install.sh")
	manifests, err := filesBelow(filepath.Join(root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range manifests {
		files = append(files, filepath.Join("deploy", file))
	}
	for _, file := range files {
		target := filepath.Join(dir, file)
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(target), 0o755)
		}
		if err == nil {
			err = os.WriteFile(target, raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// filesBelow are the names of all files below a folder, relative to it.
func filesBelow(dir string) (names []string, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// sources are the files of this module that abx consists of.
func sources(t *testing.T, root string) []string {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module,GoFiles,IgnoredGoFiles,EmbedFiles", "./cmd/abx")
	list.Dir = root
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err == nil {
		err = list.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for packages := json.NewDecoder(out); ; {
		var p struct {
			Dir                                 string
			Module                              *struct{ Main bool }
			GoFiles, IgnoredGoFiles, EmbedFiles []string
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, group := range [][]string{p.GoFiles, p.IgnoredGoFiles, p.EmbedFiles} {
			for _, file := range group {
				relative, err := filepath.Rel(root, filepath.Join(p.Dir, file))
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, relative)
			}
		}
	}
	if err := list.Wait(); err != nil {
		t.Fatal(err)
	}
	return files
}
