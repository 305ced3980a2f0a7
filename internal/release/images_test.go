package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"navix.sh/agentbox/internal/testplatform"
)

// image is what a container builder makes of a Containerfile; there is none on a test machine.
type image struct {
	root       string
	uid        uint32
	entrypoint []string
	owner      map[string]uint32 // of the folders that WORKDIR made
}

// buildImage does the statements that deploy/images use, with the files of a release as they are when downloaded.
func buildImage(t *testing.T, file, release string) image {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "images", file))
	if err != nil {
		t.Fatal(err)
	}
	m := image{root: t.TempDir(), owner: map[string]uint32{}}
	if err := os.Chmod(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		line = strings.ReplaceAll(strings.TrimSpace(line), "${ARCH}", runtime.GOARCH)
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "", "#", "ARG", "EXPOSE":
		case "FROM":
			if rest != "scratch" {
				t.Fatalf("%s: this test knows no image %s", file, rest)
			}
		case "COPY":
			words, mode := strings.Fields(rest), os.FileMode(0o644)
			if chmod, ok := strings.CutPrefix(words[0], "--chmod="); ok {
				bits, err := strconv.ParseUint(chmod, 8, 32)
				if err != nil {
					t.Fatal(err)
				}
				words, mode = words[1:], os.FileMode(bits)
			}
			program, err := os.ReadFile(filepath.Join(release, words[0]))
			if err == nil {
				err = os.WriteFile(filepath.Join(m.root, words[1]), program, mode)
			}
			if err != nil {
				t.Fatal(err)
			}
		case "USER":
			user, _, _ := strings.Cut(rest, ":")
			uid, err := strconv.ParseUint(user, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			m.uid = uint32(uid)
		case "WORKDIR":
			m.owner[rest] = m.uid
			if err := os.MkdirAll(filepath.Join(m.root, rest), 0o755); err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() == 0 {
				if err := os.Chown(filepath.Join(m.root, rest), int(m.uid), int(m.uid)); err != nil {
					t.Fatal(err)
				}
			}
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &m.entrypoint); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%s: this test knows no %s", file, verb)
		}
	}
	return m
}

// run starts the entrypoint in the image, as its user.
func (m image) run(t *testing.T, args ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a program in another root folder and as another user")
	}
	// The folders above belong to root alone, and the program is looked for after the root folder was changed.
	cmd := exec.CommandContext(t.Context(), m.entrypoint[0], append(slices.Clone(m.entrypoint[1:]), args...)...)
	cmd.Dir, cmd.Env = "/", []string{"HOME=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root, Credential: &syscall.Credential{Uid: m.uid, Gid: m.uid}}
	out, err := cmd.CombinedOutput()
	if len(out) == 0 {
		t.Errorf("%v: %v", cmd.Args, err)
	}
	return string(out)
}

// TestImages: the programs start in the images that deploy/images describes.
func TestImages(t *testing.T) {
	built, release := testplatform.Build(t), t.TempDir()
	for _, name := range []string{"controller", "envd"} {
		raw, err := os.ReadFile(filepath.Join(built, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(release, name+"-linux-"+runtime.GOARCH), raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("controller", func(t *testing.T) {
		m := buildImage(t, "controller.Containerfile", release)
		i := slices.Index(m.entrypoint, "--data-dir")
		if i < 0 || i+1 == len(m.entrypoint) {
			t.Fatalf("no --data-dir in %v", m.entrypoint)
		}
		if owner, ok := m.owner[m.entrypoint[i+1]]; !ok || owner != m.uid || m.uid == 0 {
			t.Errorf("the data directory %s is not one that user %d may write to: %v", m.entrypoint[i+1], m.uid, m.owner)
		}
		// It gets as far as the cluster, which there is none of.
		out := m.run(t, "--listen", "127.0.0.1:0", "--kubeconfig", "/nowhere")
		if strings.Contains(out, "data directory") || !strings.Contains(out, "--kubeconfig /nowhere") {
			t.Errorf("it says %s", out)
		}
	})
	t.Run("envd", func(t *testing.T) {
		m := buildImage(t, "envd.Containerfile", release)
		if out := m.run(t, "version"); strings.Contains(out, "error") {
			t.Errorf("it says %s", out)
		}
	})
}
