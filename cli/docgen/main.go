// Command docgen writes the command reference: Markdown pages and man pages, from the
// same source as --help. It is run by go generate ./cli.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
	"strings"

	"navix.sh/agentbox/cli"
)

func main() {
	dir := flag.String("dir", "../docs/reference", "folder to write to; files of earlier runs are replaced")
	flag.Parse()
	if err := write(*dir); err != nil {
		log.Fatal(err)
	}
}

func write(dir string) error {
	pages, err := cli.NewApp().Reference()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "man"), 0o755); err != nil {
		return err
	}
	index := []string{"# Command reference", "", "Written by `go generate ./cli` from the same source as `--help`. `man/` has the same pages for `man`:",
		"`man docs/reference/man/abx.1`.", ""}
	for _, p := range pages {
		index = append(index, "- ["+p.Name+"]("+p.Name+".md)")
		if err := os.WriteFile(filepath.Join(dir, p.Name+".md"), []byte(p.Markdown), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "man", p.Name+".1"), []byte(p.Man), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(strings.Join(index, "\n")+"\n"), 0o644)
}
