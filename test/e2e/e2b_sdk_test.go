// Package e2e drives the whole platform with the programs that its users have.
package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navix.sh/agentbox/internal/testplatform"
)

var update = flag.Bool("update", false, "write the table of docs/compatibility.md anew")

const (
	matrixFolder = "../../testdata/e2b"
	// table is generated from the run; docs/compatibility.md shows it between these lines.
	tableFile  = "../../docs/compatibility.md"
	tableBegin = "<!-- e2b matrix: begin -->\n"
	tableEnd   = "<!-- e2b matrix: end -->"
	domain     = "e2b.localhost"
	// atOnce sandboxes are created side by side; the pool holds some more, because other releases run meanwhile.
	atOnce   = 50
	poolSize = 66
)

// run is one line of the matrix: one package in one way of addressing.
type run struct {
	Package, Version, Mode string
	Results                map[string]result
}

type result struct {
	OK     bool   `json:"ok"`
	Absent string `json:"absent"`
	Error  string `json:"error"`
	Millis int    `json:"ms"`
}

// TestE2BPackages runs the published E2B packages, unmodified and several releases side by side, against a platform
// as it ships: by headers, and by host name over TLS.
func TestE2BPackages(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not on the PATH: the published E2B packages need it")
	}
	testplatform.E2BPackages(t)
	p := testplatform.Start(t, "--domain", domain, "--tls-self-signed")
	authority := filepath.Join(p.DataDir, "tls", "ca.crt")
	scaleDefaultPool(t, p, authority)

	endpoint, err := url.Parse(p.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "matrix.mjs")
	cmd.Dir = matrixFolder
	cmd.Env = p.Env("NODE_EXTRA_CA_CERTS="+authority, "E2B_DOMAIN="+domain+":"+endpoint.Port(), fmt.Sprintf("MATRIX_PARALLEL=%d", atOnce))
	var lines, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &lines, &problems
	ended := cmd.Run() // its failures are in the lines, or there are none

	runs := 0
	scanner := bufio.NewScanner(bytes.NewReader(lines.Bytes()))
	scanner.Buffer(nil, 8<<20)
	for scanner.Scan() {
		var r run
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			t.Fatalf("matrix.mjs printed %q: %v", scanner.Text(), err)
		}
		runs++
		t.Run(fmt.Sprintf("%s %s by %s", r.Package, r.Version, r.Mode), func(t *testing.T) { report(t, r) })
	}
	if runs == 0 || (ended != nil && !t.Failed()) {
		t.Fatalf("matrix.mjs: %v\n%s%s", ended, lines.String(), problems.String())
	}
	if !t.Failed() {
		compareTable(t, node, lines.Bytes())
	}
}

func report(t *testing.T, r run) {
	for scenario, res := range r.Results {
		t.Run(scenario, func(t *testing.T) {
			switch {
			case res.Absent != "":
				t.Skipf("this release: %s", res.Absent)
			case !res.OK:
				t.Errorf("after %d ms: %s", res.Millis, res.Error)
			}
		})
	}
}

// scaleDefaultPool makes room for atOnce sandboxes and waits until they are warm.
func scaleDefaultPool(t *testing.T, p *testplatform.Platform, authority string) {
	t.Helper()
	abx := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(p.Bin, "abx"), args...)
		cmd.Env = p.Env("SSL_CERT_FILE="+authority, "XDG_CONFIG_HOME="+t.TempDir())
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("abx %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	pool := abx("envs", "default", "pools", "--format", "name")
	abx("scale", "envs", "default", "pools", pool, "--replicas", fmt.Sprint(poolSize))
	deadline := time.Now().Add(3 * time.Minute) // only a hang meets it
	for {
		if idle := abx("envs", "default", "pools", pool, "--json", "--jq", ".status.idleReplicas"); idle == fmt.Sprint(poolSize) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("the pool has %s of %d warm Pods", idle, poolSize)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// compareTable holds the published table to the run, or writes it with -update.
func compareTable(t *testing.T, node string, lines []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runs")
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "matrix.mjs", "--markdown", file)
	cmd.Dir = matrixFolder
	table, err := cmd.Output()
	if err != nil {
		t.Fatalf("matrix.mjs --markdown: %v", err)
	}
	page, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), tableBegin)
	shown, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table: it wants the lines %q and %q", tableFile, tableBegin, tableEnd)
	}
	if shown == string(table) {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not what this run shows; run `go test ./test/e2e -run TestE2BPackages -update`. It would be:\n%s", tableFile, table)
	}
	if err := os.WriteFile(tableFile, []byte(before+tableBegin+string(table)+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
