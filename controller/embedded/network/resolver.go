package network

import (
	"net/netip"
	"os"
	"slices"
	"strings"
)

// resolverFiles may hold the machine's name servers; the second is where systemd-resolved keeps the real ones when the
// first only names its own stub.
var resolverFiles = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// resolver is a machine's resolver configuration, as far as a sandbox can use it.
type resolver struct {
	servers []netip.Addr
	rest    []string // search and options lines
}

// parseResolver keeps the servers that can be reached from outside of the machine.
func parseResolver(text string) resolver {
	var r resolver
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			if ip, err := netip.ParseAddr(f[1]); err == nil && ip.Is4() && !ip.IsLoopback() && !slices.Contains(r.servers, ip) {
				r.servers = append(r.servers, ip)
			}
		case "search", "options":
			r.rest = append(r.rest, strings.Join(f, " "))
		}
	}
	return r
}

func machineResolver() resolver {
	var r resolver
	for _, path := range resolverFiles {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if r = parseResolver(string(data)); len(r.servers) > 0 {
			return r
		}
	}
	return r
}

// ResolvConf is the content of a sandbox's /etc/resolv.conf: empty when it has no network.
func (n *Network) ResolvConf(connected bool) string {
	if n.links == nil || !connected {
		return ""
	}
	var b strings.Builder
	for _, s := range n.links.resolver.servers {
		b.WriteString("nameserver " + s.String() + "\n")
	}
	for _, line := range n.links.resolver.rest {
		b.WriteString(line + "\n")
	}
	return b.String()
}
