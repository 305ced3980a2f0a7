// Command release builds everything a release consists of: binaries for every platform, the skills and the manifests, an SBOM,
// checksums and their signature, and an install.sh that knows the release's key and address. Two runs on one commit
// write the same bytes.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// target is one binary of the release.
type target struct{ command, os, arch string }

// targets are abx for every desktop, and what runs sandboxes for Linux.
func targets() []target {
	var out []target
	for _, arch := range []string{"amd64", "arm64"} {
		for _, system := range []string{"linux", "darwin"} {
			out = append(out, target{"abx", system, arch})
		}
		for _, command := range []string{"controller", "envd", "sandbox-init"} {
			out = append(out, target{command, "linux", arch})
		}
	}
	return append(out, target{"abx", "windows", "amd64"})
}

// name is the file name of the target: <command>-<os>-<arch>, with .exe on Windows.
func (t target) name() string {
	n := t.command + "-" + t.os + "-" + t.arch
	if t.os == "windows" {
		n += ".exe"
	}
	return n
}

func main() {
	version := flag.String("version", "", "version of the release, for instance v1.2.3")
	out := flag.String("out", "dist", "folder to write to; it must not hold another release")
	key := flag.String("key", "", "PEM file of the ECDSA P-256 signing key; empty leaves the release unsigned")
	base := flag.String("base", "", "address that the release will be downloaded from")
	flag.Parse()
	if err := run(os.Stdout, targets(), *version, *out, *key, *base); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run says on say what it does, and at the end where the release is and whether it is signed.
func run(say io.Writer, programs []target, version, out, keyFile, base string) error {
	if version == "" {
		return fmt.Errorf("-version is required, for instance -version v1.2.3")
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s holds a release already: run make clean first", out)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	signer, public, err := loadKey(keyFile)
	if err != nil {
		return err
	}
	var files []string
	for _, t := range programs {
		fmt.Fprintln(say, "building", t.name())
		if err := build(t, filepath.Join(out, t.name()), version, base, public); err != nil {
			return err
		}
		files = append(files, t.name())
	}
	for _, f := range []struct {
		name  string
		write func(path string) error
	}{
		{"VERSION", func(p string) error { return os.WriteFile(p, []byte(version+"\n"), 0o644) }},
		{"skills.tar.gz", func(p string) error { return archive("skills/dist", p) }},
		{"deploy.tar.gz", func(p string) error { return archive("deploy", p) }},
		{"sbom.cdx.json", func(p string) error { return writeSBOM(p, out, version, files) }},
		{"install.sh", func(p string) error { return writeInstaller("install.sh", p, base, public) }},
	} {
		if err := f.write(filepath.Join(out, f.name)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		files = append(files, f.name)
	}
	slices.Sort(files)
	if err := writeChecksums(out, files); err != nil {
		return err
	}
	if signer == nil {
		fmt.Fprintf(say, "release %s is in %s/, UNSIGNED: install.sh and abx upgrade refuse it; a signing key (AGBX_RELEASE_SIGNING_KEY) makes it one they take\n", version, out)
		return nil
	}
	if err := sign(filepath.Join(out, "SHA256SUMS"), signer); err != nil {
		return err
	}
	fmt.Fprintf(say, "release %s is in %s/, signed with %s\n", version, out, keyFile)
	return nil
}
