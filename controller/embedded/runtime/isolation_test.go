package runtime_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/cgroup"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(agentVariable); args != "" {
		os.Exit(agentMain(args))
	}
	os.Exit(runtimetest.Main(m))
}

// The isolation suite. Every test runs as the sandbox's root and as its ordinary user.

func asBoth(t *testing.T, test func(t *testing.T, n *runtimetest.Node, user string)) {
	t.Helper()
	runtimetest.Each(t, func(t *testing.T, n *runtimetest.Node) {
		for _, user := range []string{"root", image.UserName} {
			t.Run(user, func(t *testing.T) { test(t, n, user) })
		}
	})
}

// output runs a script in a sandbox of its own.
func output(t *testing.T, n *runtimetest.Node, user, script string) string {
	t.Helper()
	out, _ := n.Run(t, n.Pod(t), n.Host(t, user, script))
	return out
}

func TestSeesNoFilesOfTheMachine(t *testing.T) {
	asBoth(t, func(t *testing.T, n *runtimetest.Node, user string) {
		marker := filepath.Join(n.Dir, "marker")
		if err := os.WriteFile(marker, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		out := output(t, n, user, `
			for f in `+marker+` /etc/shadow /etc/gshadow /etc/ssh /etc/sudoers /boot /run/docker.sock /var/run/docker.sock /var/log/* /var/spool/cron; do
				test -e $f && echo $f
			done
			for d in /root /home /tmp /srv /opt /mnt /var/tmp; do
				for f in $d/* $d/.[!.]*; do test -e $f && echo $f; done
			done
			cd /dev && for f in *; do echo $f; done`)
		if !strings.Contains(out, "/home/user\n") {
			t.Errorf("%q lacks /home/user", out)
		}
		for _, line := range strings.Split(out, "\n") {
			if strings.HasPrefix(line, "/") && line != "/home/user" {
				t.Errorf("the sandbox sees %s", line)
			}
			for _, device := range []string{"mem", "kmem", "kvm", "sda", "vda", "loop", "fuse", "net", "port", "vsock"} {
				if line == device && !(n.OwnKernel && device == "fuse") { // gVisor's own
					t.Errorf("the sandbox has the device %s", line)
				}
			}
		}
		if out := output(t, n, user, "cat /proc/1/environ | tr '\\0' '\\n'; env"); strings.Contains(out, "GOCACHE") || strings.Contains(out, runtimetest.LauncherVariable) {
			t.Errorf("the sandbox has the machine's environment: %q", out)
		}
	})
}

func TestSeesNoProcessesOfTheMachine(t *testing.T) {
	asBoth(t, func(t *testing.T, n *runtimetest.Node, user string) {
		out := strings.Fields(output(t, n, user, "cd /proc; for p in [0-9]*; do echo $p; done"))
		if len(out) == 0 || len(out) > 3 || out[0] != "1" {
			t.Errorf("processes %v are visible", out)
		}
	})
}

func TestRights(t *testing.T) {
	asBoth(t, func(t *testing.T, n *runtimetest.Node, user string) {
		out := output(t, n, user, "cat /proc/self/status; id -u; id -G")
		status := map[string]string{}
		for _, line := range strings.Split(out, "\n") {
			if k, v, ok := strings.Cut(line, ":"); ok {
				status[k] = strings.TrimSpace(v)
			}
		}
		const defaults = 0x405fb // the default set, as capabilities(7) numbers it
		sets := []string{"CapInh", "CapPrm", "CapEff", "CapBnd"}
		if !n.OwnKernel { // gVisor's /proc does not tell of these
			sets = append(sets, "CapAmb")
			if status["NoNewPrivs"] != "1" {
				t.Errorf("no_new_privs is %s", status["NoNewPrivs"])
			}
		}
		for _, set := range sets {
			have, err := strconv.ParseUint(status[set], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			allowed := uint64(defaults)
			if user != "root" && set != "CapBnd" || set == "CapInh" || set == "CapAmb" {
				allowed = 0
			}
			if have&^allowed != 0 {
				t.Errorf("%s is %x, more than %x", set, have, allowed)
			}
		}
		if status["Seccomp"] != "2" {
			t.Errorf("seccomp is %s", status["Seccomp"])
		}
		if user != "root" && !strings.Contains(out, "\n1000\n1000") {
			t.Errorf("the user is not 1000: %s", out)
		}
	})
}

// TestProbe lets a program try everything that is forbidden.
func TestProbe(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "probe"), "./testdata/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if prebuilt := os.Getenv("AGENTBOX_TEST_PROBE"); prebuilt != "" {
		cmd = exec.Command("cp", prebuilt, filepath.Join(dir, "probe"))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Services of the machine, which a sandbox must not reach.
	var addresses []string
	for _, host := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
		own, err := net.InterfaceAddrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range own {
			if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil && !ip.IsLoopback() {
				addresses = append(addresses, fmt.Sprintf("%s:%d", ip, port))
			}
		}
	}
	asBoth(t, func(t *testing.T, n *runtimetest.Node, user string) {
		c := n.Host(t, user, "")
		c.Args = append([]string{"/probe/probe"}, addresses...)
		c.Mounts = []runtime.Mount{{Source: dir, Target: "/probe", ReadOnly: true}}
		out, state := n.Run(t, n.Pod(t), c)
		if state.Code != 0 {
			t.Fatalf("the probe ended with %d: %s", state.Code, out)
		}
		tried := 0
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			tried++
			name, answer, _ := strings.Cut(line, " ")
			// In a kernel of its own a container may make a device that is no device, and set what nothing obeys.
			if answer == "ok" && !(n.OwnKernel && (name == "mknod" || name == "sysctl")) || strings.HasPrefix(name, "connect") {
				t.Errorf("allowed: %s", line)
			}
			if name == "clone3" && !n.OwnKernel && !strings.Contains(answer, "not implemented") {
				t.Errorf("callers of clone3 do not fall back: %s", line)
			}
		}
		if tried < 30 {
			t.Errorf("only %d attempts: %s", tried, out)
		}
	})
}

func TestPodsAreApart(t *testing.T) { runtimetest.Each(t, testPodsAreApart) }

func testPodsAreApart(t *testing.T, n *runtimetest.Node) {
	first, second := n.Pod(t), n.Pod(t)
	a := n.Host(t, "root", "echo secret > /tmp/file; echo secret > /dev/shm/file; exec sleep 1000")
	if err := first.Start(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	out, _ := n.Run(t, second, n.Host(t, "root", "echo /tmp/* /dev/shm/*; cat /proc/net/unix | wc -l; ps ax | grep -c '[s]leep'"))
	if want := "/tmp/* /dev/shm/*\n1\n0\n"; out != want {
		t.Errorf("one Pod sees of another: %q, want %q", out, want)
	}
	// Nor do two containers of one Pod see each other's files and processes.
	b := n.Host(t, "root", "echo /tmp/* /dev/shm/*; ps ax | grep -c '[s]leep'")
	b.Name = "other"
	if out, _ := n.Run(t, first, b); out != "/tmp/* /dev/shm/*\n0\n" {
		t.Errorf("one container sees of another: %q", out)
	}
}

func TestProcessesAreLimited(t *testing.T) { runtimetest.Each(t, testProcessesAreLimited) }

func testProcessesAreLimited(t *testing.T, n *runtimetest.Node) {
	c := n.Host(t, image.UserName, "i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); done; echo all started")
	c.Limits.Processes = 40
	out, state := n.Run(t, n.Pod(t), c)
	if strings.Contains(out, "all started") {
		t.Errorf("200 processes were started where 40 are allowed (exit code %d)", state.Code)
	}
}

func TestMemoryIsLimited(t *testing.T) { runtimetest.Each(t, testMemoryIsLimited) }

func testMemoryIsLimited(t *testing.T, n *runtimetest.Node) {
	if !n.Runtime.Limits(cgroup.Memory) {
		t.Skip("this machine does not let the agent limit memory: no memory controller")
	}
	pod := n.Pod(t)
	c := n.Host(t, image.UserName, "x=0123456789abcdef; while :; do x=$x$x; done")
	c.Limits.MemoryBytes = 32 << 20
	if _, s := n.Run(t, pod, c); !s.OOMKilled || s.Code != 137 {
		t.Errorf("the container ended with %+v", s)
	}
	// The group is used again, and a later end has nothing to do with the earlier one.
	c = n.Host(t, image.UserName, "kill -9 $$")
	c.Limits.MemoryBytes = 32 << 20
	if _, s := n.Run(t, pod, c); s.OOMKilled {
		t.Errorf("a killed container counts as out of memory: %+v", s)
	}
}

// TestSeesItsOwnLimits checks that a sandbox sees what it may use, reads no other group, and changes nothing.
func TestSeesItsOwnLimits(t *testing.T) {
	asBoth(t, func(t *testing.T, n *runtimetest.Node, user string) {
		if n.Runtime.Name() != namespaces.Name {
			t.Skip("an OCI runtime decides by itself what it shows")
		}
		if !n.Runtime.Limits(cgroup.Memory) || !n.Runtime.Limits(cgroup.CPU) {
			t.Skipf("this machine does not let the agent limit memory and CPU: %v are missing", n.Runtime.Missing())
		}
		pod := n.Pod(t)
		other := n.Host(t, user, "exec sleep 1000")
		other.Name = "other"
		if err := pod.Start(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		c := n.Host(t, user, `cd /sys/fs/cgroup
			cat memory/memory.limit_in_bytes memory.max 2>/dev/null
			cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us cpu.max 2>/dev/null | tr '\n' ' ' && echo
			cat memory/cgroup.procs cgroup.procs 2>/dev/null | head -n 1
			find . -mindepth 2 -type d
			for f in . * */cgroup.procs */memory.limit_in_bytes memory.max cgroup.procs; do
				test -d $f && mkdir $f/x 2>/dev/null && echo made $f/x
				test -f $f && (echo 0 >$f) 2>/dev/null && echo written $f
			done
			cat memory/memory.limit_in_bytes memory.max 2>/dev/null
			grep -c '/sys/fs/cgroup' /proc/self/mounts
			grep '/sys/fs/cgroup' /proc/self/mounts | grep -vc ' ro,nosuid,nodev,noexec,'`)
		c.Limits.MemoryBytes, c.Limits.CPUMillis = 64<<20, 1500
		out, _ := n.Run(t, pod, c)
		const limit = "67108864\n"
		rest, ok := strings.CutPrefix(out, limit+"150000 100000 \n1\n"+limit)
		if mounts, writable, _ := strings.Cut(rest, "\n"); !ok || mounts == "0" || writable != "0\n" {
			t.Errorf("%q", out)
		}
	})
}

func TestOnlyLoopback(t *testing.T) {
	asBoth(t, func(t *testing.T, n *runtimetest.Node, user string) {
		out := output(t, n, user, "cat /proc/net/dev | tail -n +3 | cut -d: -f1; cat /proc/net/route | wc -l")
		if f := strings.Fields(out); len(f) != 2 || f[0] != "lo" || f[1] != "1" {
			t.Errorf("interfaces and routes: %q", out)
		}
	})
}

// TestRootIsReadOnly checks the option of a Pod, and that a volume stays writable.
func TestRootIsReadOnly(t *testing.T) { runtimetest.Each(t, testRootIsReadOnly) }

func testRootIsReadOnly(t *testing.T, n *runtimetest.Node) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c := n.Host(t, "root", "for f in /x /tmp/x /volume/x; do touch $f 2>/dev/null && test -e $f && echo $f; done")
	c.Root.ReadOnly = true
	c.Mounts = []runtime.Mount{{Source: dir, Target: "/volume"}}
	want := "/volume/x\n"
	if n.OwnKernel {
		want = "/tmp/x\n" + want // gVisor puts memory on an empty /tmp
	}
	if out, _ := n.Run(t, n.Pod(t), c); out != want {
		t.Errorf("written: %q, want %q", out, want)
	}
}

// TestVolumeLinksStayInside plants links in a volume that lead out of it.
func TestVolumeLinksStayInside(t *testing.T) { runtimetest.Each(t, testVolumeLinksStayInside) }

func testVolumeLinksStayInside(t *testing.T, n *runtimetest.Node) {
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := n.Host(t, "root", "cd /part && echo *")
	c.Mounts = []runtime.Mount{{Source: dir, SubPath: "out/deep", Target: "/part"}}
	out, state := n.Run(t, n.Pod(t), c)
	if out != "*\n" || state.Code != 0 {
		t.Errorf("through the link: %q, exit code %d", out, state.Code)
	}
	if _, err := os.Stat(filepath.Join(dir, "etc", "deep")); err != nil {
		t.Errorf("the link was not resolved inside the volume: %v", err)
	}
	// A link to a mount point in the image is resolved inside the image.
	d := n.Host(t, "root", "ln -s /etc /tmp/etc; exit 0")
	d.Mounts = []runtime.Mount{{Source: dir, Target: "/var/run/../../../mnt/x"}}
	if _, state := n.Run(t, n.Pod(t), d); state.Code != 0 {
		t.Errorf("exit code %d", state.Code)
	}
}

func TestStartErrors(t *testing.T) { runtimetest.Each(t, testStartErrors) }

func testStartErrors(t *testing.T, n *runtimetest.Node) {
	p := n.Pod(t)
	for name, test := range map[string]struct {
		change func(*runtime.ContainerConfig)
		says   string // by the built-in runtime
		names  string // at least, by an OCI runtime
	}{
		"program": {func(c *runtime.ContainerConfig) { c.Args = []string{"absent"} }, "no such program in PATH", "absent"},
		"path":    {func(c *runtime.ContainerConfig) { c.Args = []string{"/absent"} }, "no such file", "/absent"},
		"cwd":     {func(c *runtime.ContainerConfig) { c.Cwd = "/etc/passwd" }, "working directory", ""},
		"volume":  {func(c *runtime.ContainerConfig) { c.Mounts = []runtime.Mount{{Source: "/absent", Target: "/x"}} }, "/x", "/x"},
		"empty":   {func(c *runtime.ContainerConfig) { c.Args = nil }, "command", "command"},
	} {
		c := n.Host(t, "root", "true")
		test.change(&c)
		want := test.says
		if n.Runtime.Name() != namespaces.Name {
			want = test.names
		}
		err := p.Start(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one with %q", name, err, want)
		}
		t.Log(err)
	}
	states, err := p.Containers(t.Context())
	if err != nil || len(states) > 0 {
		t.Errorf("failed starts leave %v, %v", states, err)
	}
}
