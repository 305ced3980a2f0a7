package network

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// links are the interfaces of an agent that is root.
type links struct {
	name     string
	prefix   netip.Prefix
	bridge   netlink.Link
	mtu      int
	resolver resolver
}

const bridgePrefix = "abx-"

func bridgeName(name string) string { return bridgePrefix + name }

// linkName is the machine's end of a sandbox's pair of interfaces.
func linkName(name, pod string) string {
	sum := sha256.Sum256([]byte(name + "/" + pod))
	return "abv" + hex.EncodeToString(sum[:6])
}

// newLinks makes the bridge and the rules, or takes those of an earlier agent.
func newLinks(name string, prefix netip.Prefix) (*links, error) {
	l := &links{name: name, prefix: prefix, resolver: machineResolver(), mtu: uplinkMTU()}
	if err := l.makeBridge(); err != nil {
		return nil, fmt.Errorf("make a bridge: %w", err)
	}
	if err := l.writeRules(); err != nil {
		return nil, errors.Join(fmt.Errorf("set up address translation: %w", err), l.close())
	}
	if err := startForwarding(); err != nil {
		return nil, errors.Join(fmt.Errorf("switch IP forwarding on: %w", err), l.close())
	}
	return l, nil
}

func (l *links) makeBridge() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name, bridge.MTU = bridgeName(l.name), l.mtu
	if err := netlink.LinkAdd(bridge); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	link, err := netlink.LinkByName(bridge.Name)
	if err != nil {
		return err
	}
	l.bridge = link
	gateway := netip.PrefixFrom(l.prefix.Addr().Next(), l.prefix.Bits())
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: ipNet(gateway)}); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

const defaultMTU = 1500

// uplinkMTU is that of the interface with the default route: a larger one inside would lose packets.
func uplinkMTU() int {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return defaultMTU
	}
	for _, r := range routes {
		if r.Dst != nil && r.Dst.String() != "0.0.0.0/0" {
			continue
		}
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil && link.Attrs().MTU > 0 {
			return min(link.Attrs().MTU, defaultMTU)
		}
	}
	return defaultMTU
}

func (l *links) attach(pod string, pid int, ip netip.Addr) (err error) {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex = linkName(l.name, pod), l.mtu, l.bridge.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("make a pair of interfaces: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.detach(pod))
		}
	}()
	// Sandboxes talk to the bridge only, not to each other.
	if err := netlink.LinkSetIsolated(veth, true); err != nil {
		return fmt.Errorf("isolate the interface: %w", err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return err
	}
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inside.Close()
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := inside.AddrAdd(eth0, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(ip, l.prefix.Bits()))}); err != nil {
		return err
	}
	if err := inside.LinkSetUp(eth0); err != nil {
		return err
	}
	return inside.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: l.prefix.Addr().Next().AsSlice()})
}

func (l *links) detach(pod string) error {
	link, err := netlink.LinkByName(linkName(l.name, pod))
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	// It goes with the sandbox's namespace too, which may have been quicker.
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func (l *links) leftovers(keep map[string]bool) error {
	wanted := map[string]bool{}
	for pod := range keep {
		wanted[linkName(l.name, pod)] = true
	}
	all, err := netlink.LinkList()
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range all {
		if link.Attrs().MasterIndex == l.bridge.Attrs().Index && !wanted[link.Attrs().Name] {
			errs = append(errs, netlink.LinkDel(link))
		}
	}
	return errors.Join(errs...)
}

// close removes the interfaces and rules; the last agent of the machine sets forwarding as it was.
func (l *links) close() error {
	var errs []error
	if l.bridge != nil {
		errs = append(errs, l.leftovers(nil), netlink.LinkDel(l.bridge))
	}
	return errors.Join(append(errs, removeTable(tableName(l.name)), stopForwarding())...)
}
