package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// build compiles one target reproducibly: no paths, no VCS stamp, no build id.
func build(t target, path, version, base, publicPEM string) error {
	ldflags := []string{
		"-s", "-w", "-buildid=",
		"-X", "navix.sh/agentbox/cli.Version=" + version,
		"-X", "navix.sh/agentbox/controller.Version=" + version,
		"-X", "navix.sh/agentbox/cli/upgrade.Base=" + base,
		// PEM has line ends, which -X cannot carry.
		"-X", "navix.sh/agentbox/cli/upgrade.PublicKey=" + base64.StdEncoding.EncodeToString([]byte(publicPEM)),
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", strings.Join(ldflags, " "), "-o", path, "./cmd/"+t.command)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", t.name(), err, out)
	}
	return nil
}
