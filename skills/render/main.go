// Command render writes the skills: src/<name>.md with its placeholders filled in becomes dist/<name>/SKILL.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/registry"
)

func main() {
	src := flag.String("src", "src", "folder of the sources")
	out := flag.String("out", "dist", "folders to write to, separated by commas")
	flag.Parse()
	for dir := range strings.SplitSeq(*out, ",") {
		if err := run(*src, dir); err != nil {
			fmt.Fprintln(os.Stderr, "skills:", err)
			os.Exit(1)
		}
	}
}

func run(src, out string) error {
	sources, err := filepath.Glob(filepath.Join(src, "*.md"))
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("no sources in %s", src)
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for _, source := range sources {
		raw, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(source), ".md")
		text, err := render(name, string(raw), registry.Default())
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		dir := filepath.Join(out, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render fills in one source. Front matter scalars are always quoted: agents' YAML readers disagree about the rest.
func render(name, source string, ix *registry.Index) (string, error) {
	description, body, err := split(source)
	if err != nil {
		return "", err
	}
	t, err := template.New(name).Option("missingkey=error").Funcs(placeholders(ix)).Parse(body)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "---\nname: %q\ndescription: %q\nmetadata:\n  kind: \"agentbox-skill\"\n  spec: %q\n---\n", name, description, ix.SpecVersion)
	if err := t.Execute(&b, nil); err != nil {
		return "", err
	}
	return strings.TrimRight(b.String(), "\n") + "\n", nil
}

func split(source string) (description, body string, err error) {
	rest, ok := strings.CutPrefix(source, "---\ndescription: ")
	if !ok {
		return "", "", fmt.Errorf("want front matter that begins with: description: …")
	}
	description, body, ok = strings.Cut(rest, "\n---\n")
	if !ok || strings.ContainsAny(description, "\n\"\\") {
		return "", "", fmt.Errorf("want one line of description without quotes, closed by ---")
	}
	return description, body, nil
}

// placeholders are what a source may ask the registry for; a name that is not there fails the rendering.
func placeholders(ix *registry.Index) template.FuncMap {
	find := func(plural string) (*registry.Resource, error) {
		if r := ix.Find(plural); r != nil {
			return r, nil
		}
		return nil, fmt.Errorf("no resource %q", plural)
	}
	return template.FuncMap{
		"columns": func(plural string) (string, error) {
			r, err := find(plural)
			if err != nil {
				return "", err
			}
			names := make([]string, 0, len(r.Columns))
			for _, c := range r.Columns {
				names = append(names, c.ID)
			}
			return quoted(names), nil
		},
		"values": func(plural, key string) (string, error) {
			r, err := find(plural)
			if err != nil {
				return "", err
			}
			f := r.Filter(key)
			if f == nil || len(f.Values) == 0 {
				return "", fmt.Errorf("%s has no filter %q with a closed set", plural, key)
			}
			return quoted(f.Values), nil
		},
		"resources": func() string {
			var b strings.Builder
			b.WriteString("| Resource | What it is |\n|---|---|\n")
			for i := range ix.Resources {
				r := &ix.Resources[i]
				fmt.Fprintf(&b, "| `%s` | %s |\n", ix.Form(r), r.Summary)
			}
			return strings.TrimRight(b.String(), "\n")
		},
		"exits": func() string {
			var b strings.Builder
			b.WriteString("| Exit | Meaning | `code`, for instance |\n|---|---|---|\n")
			for _, e := range clierr.Exits {
				codes := e.Examples
				if len(codes) > 3 {
					codes = codes[:3]
				}
				fmt.Fprintf(&b, "| %d | %s | %s |\n", e.Code, e.Meaning, quoted(codes))
			}
			return strings.TrimRight(b.String(), "\n")
		},
	}
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "`" + n + "`"
	}
	return strings.Join(out, ", ")
}
