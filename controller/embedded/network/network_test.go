package network

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

func TestMain(m *testing.M) { os.Exit(runtimetest.Main(m)) }

func newNetwork(t *testing.T) *Network {
	t.Helper()
	n, err := New(Options{Name: runtimetest.Random()[:8], StateFile: filepath.Join(t.TempDir(), "network.json"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// outside is another machine: a network namespace behind an interface of this one, with a listener that echoes. It
// knows no way back to the sandboxes' addresses.
func outside(t *testing.T) (address string, accepted <-chan netip.Addr) {
	t.Helper()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	l, listenErr := net.Listen("tcp4", "0.0.0.0:0")
	if err := netns.Set(here); err != nil {
		t.Fatal(err)
	}
	if listenErr != nil {
		t.Fatal(listenErr)
	}
	name := "abt" + runtimetest.Random()[:8]
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(there)}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth); l.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(netlink.AddrAdd(veth, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("198.18.7.1/30"))}))
	must(netlink.LinkSetUp(veth))
	inside, err := netlink.NewHandleAt(there)
	must(err)
	defer inside.Close()
	eth0, err := inside.LinkByName("eth0")
	must(err)
	must(inside.AddrAdd(eth0, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("198.18.7.2/30"))}))
	must(inside.LinkSetUp(eth0))

	from := make(chan netip.Addr, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			from <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			_, _ = io.WriteString(c, "hello from outside\n")
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return "198.18.7.2:" + port, from
}

func start(t *testing.T, node *runtimetest.Node, n *Network) (runtime.Pod, string) {
	t.Helper()
	ip, err := n.Allocate()
	if err != nil {
		t.Fatal(err)
	}
	uid := runtimetest.Random()
	p, err := node.Runtime.StartPod(t.Context(), runtime.PodConfig{UID: uid, Hostname: "box", Dir: filepath.Join(node.Dir, "pods", uid), Address: ip.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := n.Detach(uid); err != nil {
			t.Error(err)
		}
	})
	if err := n.Attach(uid, p.PID(), ip.String()); err != nil {
		t.Fatal(err)
	}
	return p, ip.String()
}

func TestPrivateNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can make bridges")
	}
	before, err := os.ReadFile(forwardFile)
	if err != nil {
		t.Fatal(err)
	}
	n := newNetwork(t)
	if !n.Outbound() {
		t.Skipf("this machine does not allow it: %s", n.Describe())
	}
	world, accepted := outside(t)
	node := runtimetest.New(t)
	first, firstIP := start(t, node, n)
	second, _ := start(t, node, n)

	// Something to reach: on this machine, and in the other sandbox.
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	targets := []string{n.gateway().String() + ":" + port, "198.18.7.1:" + port, "127.0.0.1:" + port}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil {
			targets = append(targets, net.JoinHostPort(ip.String(), port))
		}
	}
	server := node.Host(t, "root", "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/1' || true; sleep 1000")
	if err := first.Start(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	targets = append(targets, firstIP+":22", firstIP+":"+port, "169.254.169.254:80")

	script := "set -- " + strings.Join(targets, " ") + `
		for a; do timeout 1 bash -c "exec 3<>/dev/tcp/${a%:*}/${a#*:} && echo reached $a" 2>/dev/null & done; wait
		timeout 10 bash -c "cat < /dev/tcp/` + strings.Replace(world, ":", "/", 1) + `"`
	out, _ := node.Run(t, second, node.Host(t, image.UserName, script))
	if want := "hello from outside\n"; out != want {
		t.Errorf("the sandbox shows %q, want %q", out, want)
	}
	select {
	case from := <-accepted: // before the sandbox read the greeting
		if from.String() != "198.18.7.1" {
			t.Errorf("outside sees the address %s of the sandbox", from)
		}
	default:
		t.Error("nothing arrives outside")
	}

	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName(bridgeName(n.name)); err == nil {
		t.Error("the bridge is left")
	}
	n.links = nil
	after, err := os.ReadFile(forwardFile)
	if err != nil {
		t.Fatal(err)
	}
	// Another agent of this machine may have come or gone meanwhile; alone, forwarding is as before.
	if links, _ := filepath.Glob("/sys/class/net/" + bridgePrefix + "*"); len(links) == 0 && string(before) != string(after) {
		t.Errorf("IP forwarding is %q after it was %q", after, before)
	}
}

func TestAddresses(t *testing.T) {
	n := &Network{prefix: netip.MustParsePrefix("10.213.0.0/29"), used: map[netip.Addr]bool{}}
	n.last = n.gateway()
	n.used[n.gateway()] = true
	seen := map[string]bool{}
	for range 5 {
		ip, err := n.Allocate()
		if err != nil {
			t.Fatal(err)
		}
		if seen[ip.String()] || ip == n.gateway() || !n.prefix.Contains(ip.Next()) {
			t.Errorf("bad address %s", ip)
		}
		seen[ip.String()] = true
	}
	if ip, err := n.Allocate(); err == nil {
		t.Errorf("a sixth address: %s", ip)
	}
	n.Free("10.213.0.4")
	if ip, err := n.Allocate(); err != nil || ip.String() != "10.213.0.4" {
		t.Errorf("after one was freed: %s, %v", ip, err)
	}
	n.Free(n.gateway().String())
	if !n.used[n.gateway()] {
		t.Error("the gateway was freed")
	}
	if err := n.Keep("10.9.9.9"); !errors.Is(err, ErrForeign) {
		t.Errorf("a foreign address: %v", err)
	}
}

func TestChooseSubnet(t *testing.T) {
	taken := []netip.Prefix{netip.MustParsePrefix("10.213.5.0/24"), netip.MustParsePrefix("10.214.0.0/15"), netip.MustParsePrefix("192.168.0.0/16")}
	if p, err := chooseSubnet(taken); err != nil || p.String() != "10.216.0.0/16" {
		t.Errorf("chose %s, %v", p, err)
	}
	if _, err := chooseSubnet([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}); err == nil {
		t.Error("chose one where all are taken")
	}
}

func TestParseRoutes(t *testing.T) {
	text := "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n" +
		"eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
	if got := parseRoutes(text); len(got) != 1 || got[0].String() != "192.0.2.0/24" {
		t.Errorf("routes %v", got)
	}
}

func TestParseResolver(t *testing.T) {
	r := parseResolver("# x\nnameserver 127.0.0.53\nnameserver 192.0.2.1\nnameserver fe80::1\nnameserver 192.0.2.1\nsearch a b\noptions edns0\nnameserver\n")
	if len(r.servers) != 1 || r.servers[0].String() != "192.0.2.1" || strings.Join(r.rest, "|") != "search a b|options edns0" {
		t.Errorf("parsed %+v", r)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("nameserver 1.2.3.4\n")
	f.Add("eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n")
	f.Fuzz(func(_ *testing.T, text string) {
		parseResolver(text)
		parseRoutes(text)
	})
}
