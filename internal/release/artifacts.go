package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto"
	"debug/buildinfo"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const sha256Hash = crypto.SHA256

// archive packs a folder: sorted names, no times, no owners.
func archive(dir, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	zip, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	packed := tar.NewWriter(zip)
	root := os.DirFS(dir)
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if err := packed.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(raw)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = packed.Write(raw)
		return err
	})
	if err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return f.Close()
}

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

// writeSBOM lists the modules that the binaries were really built from, as CycloneDX 1.5.
func writeSBOM(path, dir, version string, files []string) error {
	seen := map[string]component{}
	for _, name := range files {
		info, err := buildinfo.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // not a Go binary
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			purl := "pkg:golang/" + m.Path + "@" + m.Version
			seen[purl] = component{Type: "library", Name: m.Path, Version: m.Version, PURL: purl}
		}
		std := "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")
		seen[std] = component{Type: "library", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), PURL: std}
	}
	components := make([]component, 0, len(seen))
	for _, c := range seen {
		components = append(components, c)
	}
	slices.SortFunc(components, func(a, b component) int { return strings.Compare(a.PURL, b.PURL) })
	raw, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"component": component{Type: "application", Name: "agentbox", Version: version, PURL: "pkg:golang/navix.sh/agentbox@" + version}},
		"components": components,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
