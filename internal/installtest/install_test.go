package installtest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInstall(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		m.use(r)
		before := m.files(t)
		m.install(t).want(t, 0, "installed: "+m.binDir()+"/abx "+version, "")
		want := []string{".agents/skills/abx-common/SKILL.md", ".local/bin/.agentbox-files", ".local/bin/abx"}
		if got := newFiles(before, m.files(t)); !slices.Equal(got, want) {
			t.Errorf("new or changed files %v, want %v", got, want)
		}
		info, err := os.Stat(filepath.Join(m.binDir(), "abx"))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("abx: %v, %v", info, err)
		}
		m.install(t).want(t, 0, "installed:", "") // again, over itself
		if got := newFiles(before, m.files(t)); !slices.Equal(got, want) {
			t.Errorf("a second run changed %v, want %v", got, want)
		}
	})
}

// The installer of a release knows the release's address and key.
func TestPipedInstallerOfARelease(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		key, err := os.ReadFile(r.pem)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(installer(t), "release_base=''", "release_base='"+r.url+"'", 1)
		text = strings.Replace(text, "release_key=''", "release_key='"+strings.TrimSpace(string(key))+"'", 1)
		r.open()
		m.pipe(t, text, "--no-skills").want(t, 0, "installed: "+m.binDir()+"/abx", "")
		if _, err := os.Stat(m.skillDir()); !os.IsNotExist(err) {
			t.Errorf("--no-skills made %s (%v)", m.skillDir(), err)
		}
	})
}

func installer(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestInstallsNothingThatIsNotVerified(t *testing.T) {
	other := newRelease(t)
	cases := []struct {
		name    string
		spoil   func(r *release)
		without []string
		env     map[string]string
		err     string
	}{
		{name: "tampered program", spoil: func(r *release) { r.files[abxFile()] = []byte("evil") }, err: "checksum mismatch for " + abxFile()},
		{name: "tampered version", spoil: func(r *release) { r.files["VERSION"] = []byte("v9.9.9\n") }, err: "checksum mismatch for VERSION"},
		{name: "tampered list", spoil: func(r *release) { r.files["SHA256SUMS"] = append(r.files["SHA256SUMS"], '\n') }, err: "not by the release key"},
		{name: "signature of another", spoil: func(r *release) { r.files["SHA256SUMS.sig"] = other.files["SHA256SUMS.sig"] }, err: "not by the release key"},
		{name: "whole release of another", spoil: func(r *release) { r.files = other.files }, err: "not by the release key"},
		{name: "empty signature", spoil: func(r *release) { r.files["SHA256SUMS.sig"] = nil }, err: "not by the release key"},
		{name: "no signature", spoil: func(r *release) { delete(r.files, "SHA256SUMS.sig") }, err: "has no signature"},
		{name: "no list", spoil: func(r *release) { delete(r.files, "SHA256SUMS") }, err: "no release at"},
		{name: "no checksum", spoil: func(r *release) { r.signList(lineOf(r, "VERSION")) }, err: "lists no checksum for " + abxFile()},
		{name: "checksum of a wrong form", spoil: func(r *release) {
			r.signList(lineOf(r, "VERSION") + "123  " + abxFile() + "\n")
		}, err: "malformed"},
		{name: "two checksums of one file", spoil: func(r *release) {
			r.signList(lineOf(r, "VERSION") + lineOf(r, abxFile()) + lineOf(r, abxFile()))
		}, err: "malformed"},
		{name: "no program", spoil: func(r *release) { delete(r.files, abxFile()) }, err: "cannot download"},
		{name: "half a program", spoil: func(r *release) { r.half = abxFile() }, err: "cannot download"},
		{name: "half a list", spoil: func(r *release) { r.half = "SHA256SUMS" }, err: "no release at"},
		{name: "nothing listens", env: map[string]string{"AGBX_CLI_BASE": "http://127.0.0.1:1/latest"}, err: "no release at"},
		{name: "no address", env: map[string]string{"AGBX_CLI_BASE": ""}, err: "no address to install from"},
		{name: "no key", env: map[string]string{"AGBX_CLI_PUBLIC_KEY": ""}, err: "carries no release key"},
		{name: "key that is not there", env: map[string]string{"AGBX_CLI_PUBLIC_KEY": "nowhere.pem"}, err: "cannot read AGBX_CLI_PUBLIC_KEY"},
		{name: "key of another", env: map[string]string{"AGBX_CLI_PUBLIC_KEY": other.pem}, err: "not by the release key"},
		{name: "no tool for hashes", without: []string{"sha256sum", "openssl"}, env: map[string]string{"AGBX_INSECURE_SKIP_SIGNATURE": "1"}, err: "no tool for SHA-256"},
		{name: "no openssl", without: []string{"openssl"}, err: "openssl is needed"},
		{name: "no downloader", without: []string{"curl"}, err: "neither curl nor wget"},
		{name: "tampered program, signature not asked for", spoil: func(r *release) { r.files[abxFile()] = []byte("evil") },
			env: map[string]string{"AGBX_INSECURE_SKIP_SIGNATURE": "1"}, err: "checksum mismatch"},
		{name: "key that is none", env: map[string]string{"AGBX_CLI_PUBLIC_KEY": "/etc/passwd"}, err: "AGBX_CLI_PUBLIC_KEY=/etc/passwd holds no public key"},
		{name: "no signature, and what to do", spoil: func(r *release) { delete(r.files, "SHA256SUMS.sig") }, err: "ask whoever publishes it"},
		{name: "pinned version without the v", env: map[string]string{"AGBX_CLI_VERSION": "1.2.3"}, err: "for instance: AGBX_CLI_VERSION=v1.2.3"},
		{name: "pinned version that is not there", env: map[string]string{"AGBX_CLI_VERSION": "v9.9.9"}, err: "no release at"},
		{name: "pinned version that another hides behind", spoil: func(r *release) {
			r.files["VERSION"] = []byte("v1.0.0\n")
			r.sign()
		}, env: map[string]string{"AGBX_CLI_VERSION": version}, err: "asked for " + version},
	}
	eachShell(t, func(t *testing.T, shell []string) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				if shell[len(shell)-1] == "sh" && len(shell) == 2 && c.without != nil {
					t.Skip("busybox carries the tools that this case takes away")
				}
				r, m := newRelease(t), newMachine(t, shell, c.without...)
				if c.spoil != nil {
					c.spoil(r)
				}
				m.use(r)
				for name, value := range c.env {
					m.env[name] = value
				}
				old := filepath.Join(m.binDir(), "abx")
				write(t, old, "the old abx", 0o755)
				before := m.files(t)
				m.install(t).want(t, 1, "", c.err)
				if got := newFiles(before, m.files(t)); got != nil {
					t.Errorf("a failed installation left %v", got)
				}
			})
		}
	})
}

// lineOf is a file's line in the list of checksums.
func lineOf(r *release, name string) string {
	for line := range strings.Lines(string(r.files["SHA256SUMS"])) {
		if strings.HasSuffix(line, "  "+name+"\n") {
			return line
		}
	}
	return ""
}

func TestSkippingTheSignatureIsLoud(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		delete(r.files, "SHA256SUMS.sig")
		m.use(r)
		m.env["AGBX_INSECURE_SKIP_SIGNATURE"] = "1"
		m.install(t).want(t, 0, "installed:", "WARNING: AGBX_INSECURE_SKIP_SIGNATURE=1")
	})
}

func TestPinnedVersion(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		m.use(r)
		m.env["AGBX_CLI_VERSION"] = version
		m.install(t).want(t, 0, "installed:", "")
		for _, path := range r.asked() {
			if !strings.HasPrefix(path, "/cli/"+version+"/") {
				t.Errorf("asked for %s", path)
			}
		}
	})
}

func TestOtherTools(t *testing.T) {
	for name, c := range map[string]struct{ without, with string }{
		"wget":    {"curl", "wget"},
		"shasum":  {"sha256sum", "shasum"},
		"openssl": {"sha256sum", "openssl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, m := newRelease(t), newMachine(t, []string{"/bin/sh"}, c.without, c.with)
			m.addTool(t, c.with)
			if c.with == "shasum" {
				m.addTool(t, "perl")
			}
			m.use(r)
			m.install(t).want(t, 0, "installed:", "")
		})
	}
	t.Run("wget meets half a file", func(t *testing.T) {
		t.Parallel()
		r, m := newRelease(t), newMachine(t, []string{"/bin/sh"}, "curl")
		m.addTool(t, "wget")
		r.half = abxFile()
		m.use(r)
		m.install(t).want(t, 1, "", "cannot download")
	})
}

func TestTargets(t *testing.T) {
	cases := []struct {
		name    string
		prepare func(t *testing.T, m *machine)
		err     string
	}{
		{"a file where the folder should be", func(t *testing.T, m *machine) { write(t, m.binDir(), "x", 0o644) }, "AGBX_BIN_DIR"},
		{"a folder where the program should be", func(t *testing.T, m *machine) {
			write(t, filepath.Join(m.binDir(), "abx", "mine"), "x", 0o644)
		}, "is a folder"},
		{"no home", func(_ *testing.T, m *machine) { m.env["HOME"] = "" }, "HOME is not set"},
	}
	eachShell(t, func(t *testing.T, shell []string) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				r, m := newRelease(t), newMachine(t, shell)
				m.use(r)
				c.prepare(t, m)
				before := m.files(t)
				m.install(t).want(t, 1, "", c.err)
				if got := newFiles(before, m.files(t)); got != nil {
					t.Errorf("a failed installation left %v", got)
				}
			})
		}
	})
}

// When the skills cannot be written, the programs stay as they were too.
func TestSkillsThatCannotBeWritten(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		for name, c := range map[string]struct{ spoil, err string }{
			"no folder":             {"", "cannot write to "},
			"somebody else's skill": {"not-ours", "is not a skill of abx"},
		} {
			t.Run(name, func(t *testing.T) {
				r, m := newRelease(t), newMachine(t, shell)
				m.use(r)
				write(t, filepath.Join(m.skillDir(), c.spoil), "x", 0o644)
				write(t, filepath.Join(m.binDir(), "abx"), "the old abx", 0o755)
				before := m.files(t)
				got := m.install(t, "--with-controller")
				got.want(t, 1, "", c.err)
				got.want(t, 1, "", "AGBX_SKILL_DIR")
				if after := newFiles(before, m.files(t)); after != nil || strings.Contains(got.out, "installed:") {
					t.Errorf("a failed installation left %v and said %s", after, got.out)
				}
				m.install(t, "--no-skills").want(t, 0, "installed: "+m.binDir(), "")
			})
		}
	})
}

func TestChosenFolders(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		m.use(r)
		bin, skills := filepath.Join(m.home, "my bin"), filepath.Join(m.home, "my skills")
		m.env["AGBX_BIN_DIR"], m.env["AGBX_SKILL_DIR"] = bin+"/", skills
		m.install(t).want(t, 0, "installed: "+bin+"/abx ", "")
		for _, path := range []string{bin + "/abx", skills + "/abx-common/SKILL.md"} {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWithController(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		m.use(r)
		got := m.install(t, "--with-controller")
		got.want(t, 0, "controller, with envd and sandbox-init beside it", "")
		got.want(t, 0, "next: controller serves the platform", "")
		got.want(t, 0, ". \""+m.home+"/.local/share/agentbox/client.env\"", "")
		entries, err := os.ReadDir(m.binDir())
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if want := []string{".agentbox-files", "abx", "controller", "envd", "sandbox-init"}; err != nil || !slices.Equal(names, want) {
			t.Errorf("%v (%v), want %v", names, err, want)
		}
	})
}

func TestPathAdvice(t *testing.T) {
	for _, c := range []struct{ shell, file, want string }{
		{"/bin/zsh", "", "~/.zshrc\n"},
		{"/bin/bash", "", "~/.bashrc (terminals) and ~/.profile (logins)\n"},
		{"/bin/bash", ".bash_profile", "~/.bashrc (terminals) and ~/.bash_profile (logins)\n"},
		{"/bin/bash", ".bash_login", "~/.bashrc (terminals) and ~/.bash_login (logins)\n"},
		{"/usr/bin/fish", "", "fish_add_path"},
		{"", ".bash_profile", "~/.profile\n"},
	} {
		r, m := newRelease(t), newMachine(t, []string{"/bin/sh"})
		m.use(r)
		m.env["SHELL"] = c.shell
		if c.file != "" {
			write(t, filepath.Join(m.home, c.file), "", 0o644)
		}
		m.install(t).want(t, 0, c.want, "")
	}
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		m.use(r)
		m.env["PATH"] += ":" + m.binDir()
		delete(m.env, "SHELL")
		if got := m.install(t); got.code != 0 || strings.Contains(got.out, "PATH") || got.err != "" {
			t.Errorf("advice that nobody needs: %+v", got)
		}
		older := filepath.Join(m.bin, "abx")
		write(t, older, "#!/bin/sh\n", 0o755)
		m.install(t).want(t, 0, "installed:", "another abx comes first on the PATH: "+older)
	})
}

func TestUninstall(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		m.use(r)
		write(t, filepath.Join(m.binDir(), "envd"), "another envd", 0o755)
		write(t, filepath.Join(m.skillDir(), "abx-mine", "SKILL.md"), "mine", 0o644)
		write(t, filepath.Join(m.skillDir(), "abx-common", "notes.md"), "mine too", 0o644)
		write(t, filepath.Join(m.home, ".config", "abx", "config.json"), "{}", 0o600)
		before := m.files(t)
		m.install(t).want(t, 0, "installed:", "")
		m.install(t, "--uninstall").want(t, 0, "removed: abx abx-common", "left "+m.skillDir()+"/abx-common: it holds files that are not ours")
		after := m.files(t)
		if len(after) != len(before) || newFiles(before, after) != nil {
			t.Errorf("after install and uninstall there is %v, before %v", after, before)
		}
		m.install(t, "--uninstall").want(t, 0, "nothing of AgentBox", "")
	})
}

// The folders that were chosen are not remembered.
func TestUninstallFromChosenFolders(t *testing.T) {
	r, m := newRelease(t), newMachine(t, []string{"/bin/sh"})
	m.use(r)
	chosen := map[string]string{"AGBX_BIN_DIR": filepath.Join(m.home, "my bin"), "AGBX_SKILL_DIR": filepath.Join(m.home, "my skills")}
	maps.Copy(m.env, chosen)
	m.install(t).want(t, 0, "installed:", "")
	for name := range chosen {
		delete(m.env, name)
	}
	m.install(t, "--uninstall").want(t, 0, "if it was installed with AGBX_BIN_DIR or AGBX_SKILL_DIR, give them again", "")
	maps.Copy(m.env, chosen)
	m.install(t, "--uninstall").want(t, 0, "removed: abx abx-common", "")
}

// A program that cannot be removed is named, the skills go all the same, and the next try knows what is left.
func TestUninstallWhereNothingMayBeRemoved(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		if len(shell) == 2 {
			t.Skip("busybox has an rm of its own")
		}
		r, m := newRelease(t), newMachine(t, shell)
		m.use(r)
		m.install(t).want(t, 0, "installed:", "")
		// Tests may run as root, whom no mode keeps out: rm itself refuses.
		rm, err := os.Readlink(filepath.Join(m.bin, "rm"))
		if err == nil {
			err = os.Remove(filepath.Join(m.bin, "rm"))
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(m.bin, "rm"), "#!/bin/sh\ncase \"$*\" in */.local/bin/*) echo 'rm: Permission denied' >&2; exit 1 ;; esac\nexec "+rm+" \"$@\"\n", 0o755)
		got := m.install(t, "--uninstall")
		got.want(t, 1, "removed: abx-common", "cannot remove "+m.binDir()+"/abx")
		got.want(t, 1, "", "not everything was removed")
		if strings.Contains(got.err, "rm:") || strings.Contains(got.out, "nothing of AgentBox") {
			t.Errorf("it said %s%s", got.out, got.err)
		}
		if err := os.Remove(filepath.Join(m.bin, "rm")); err != nil {
			t.Fatal(err)
		}
		m.addTool(t, "rm")
		m.install(t, "--uninstall").want(t, 0, "removed: abx\n", "")
	})
}

func TestOptions(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		m := newMachine(t, shell)
		m.install(t, "--help").want(t, 0, "AGBX_CLI_VERSION", "")
		m.pipe(t, installer(t), "--help").want(t, 0, "--uninstall", "")
		m.install(t, "--sudo").want(t, 1, "", "unknown option --sudo")
	})
}

// A download that broke off anywhere does nothing at all.
func TestTruncatedScript(t *testing.T) {
	text := installer(t)
	cuts := []int{}
	for i := range text {
		if text[i] == '\n' || i > len(text)-len("{ main \"$@\"; }\n") {
			cuts = append(cuts, i)
		}
	}
	eachShell(t, func(t *testing.T, shell []string) {
		r, m := newRelease(t), newMachine(t, shell)
		m.use(r)
		step := 1
		if filepath.Base(shell[0]) != "dash" {
			step = 7 // the other shells see a share of the cuts, and all of the last line's
		}
		before := m.files(t)
		for i, cut := range cuts {
			if cut >= len(text)-2 || i%step != 0 && cut < len(text)-20 {
				continue // the last newline is not needed
			}
			m.pipe(t, text[:cut])
			if got := newFiles(before, m.files(t)); got != nil {
				t.Fatalf("cut at byte %d of %d it wrote %v", cut, len(text), got)
			}
		}
		if asked := r.asked(); len(asked) > 0 {
			t.Errorf("it asked for %v", asked)
		}
	})
}
