package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// freeSubnet chooses a private /16 that no interface and no route of the machine touches.
func freeSubnet() (netip.Prefix, error) {
	taken, err := takenSubnets()
	if err != nil {
		return netip.Prefix{}, err
	}
	return chooseSubnet(taken)
}

func chooseSubnet(taken []netip.Prefix) (netip.Prefix, error) {
	// From a part of 10.0.0.0/8 that neither clusters nor Docker choose by themselves.
	for second := 213; second < 254; second++ {
		candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(second), 0, 0}), 16)
		free := true
		for _, t := range taken {
			free = free && !t.Overlaps(candidate)
		}
		if free {
			return candidate, nil
		}
	}
	return netip.Prefix{}, errors.New("no free private network: every one of 10.213.0.0/16 to 10.253.0.0/16 is used by this machine")
}

func takenSubnets() ([]netip.Prefix, error) {
	var taken []netip.Prefix
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			taken = append(taken, p.Masked())
		}
	}
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return taken, nil // a machine without IPv4 has none
	}
	return append(taken, parseRoutes(string(routes))...), nil
}

// parseRoutes reads /proc/net/route; default routes do not count.
func parseRoutes(text string) []netip.Prefix {
	var routes []netip.Prefix
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		destination, err1 := strconv.ParseUint(f[1], 16, 32)
		mask, err2 := strconv.ParseUint(f[7], 16, 32)
		if err1 != nil || err2 != nil || mask == 0 {
			continue
		}
		bits := 0
		for m := mask; m != 0; m >>= 1 {
			bits += int(m & 1)
		}
		// The numbers are in network order, read as if they were little-endian.
		addr := netip.AddrFrom4([4]byte{byte(destination), byte(destination >> 8), byte(destination >> 16), byte(destination >> 24)})
		routes = append(routes, netip.PrefixFrom(addr, bits).Masked())
	}
	return routes
}
