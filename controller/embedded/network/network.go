// Package network gives sandboxes their addresses, and where the machine allows it a private network with outbound
// access: a bridge, a pair of interfaces for each sandbox, and address translation.
//
// Sandboxes reach neither each other nor the machine. An ordinary user's sandboxes have the loopback interface only.
package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync"
)

// ErrForeign is returned for an address outside of the current subnet: that of a sandbox from before it changed.
var ErrForeign = errors.New("the address is not of this network")

// Options are what the network needs.
type Options struct {
	// Name is short, and the same for every agent of a data directory: it is part of interface and table names.
	Name string
	// StateFile keeps the subnet over restarts.
	StateFile string
	Logger    *slog.Logger
}

// Network hands out addresses and connects sandboxes. It is safe for concurrent use.
type Network struct {
	log    *slog.Logger
	name   string
	prefix netip.Prefix
	links  *links // nil where sandboxes have loopback only
	why    string // why there are no links

	mu   sync.Mutex
	used map[netip.Addr]bool
	last netip.Addr
}

type savedNetwork struct {
	Subnet netip.Prefix `json:"subnet"`
}

// New opens the network: its subnet is the one of the last run, or one that the machine does not use.
func New(o Options) (*Network, error) {
	n := &Network{log: o.Logger, name: o.Name, used: map[netip.Addr]bool{}}
	var saved savedNetwork
	data, err := os.ReadFile(o.StateFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if saved.Subnet, err = freeSubnet(); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(data, &saved); err != nil || !saved.Subnet.IsValid() {
			return nil, fmt.Errorf("%s is damaged; delete it: %w", o.StateFile, err)
		}
	}
	n.prefix = saved.Subnet
	n.last = n.gateway()
	n.used[n.gateway()] = true
	out, err := json.Marshal(saved)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(o.StateFile+".new", out, 0o600); err != nil {
		return nil, err
	}
	// On record before it is on the machine: an agent that is killed in between goes on with the same subnet.
	if err := os.Rename(o.StateFile+".new", o.StateFile); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		n.why = "needs root"
	} else if n.links, err = newLinks(o.Name, n.prefix); err != nil {
		n.why = err.Error()
		n.log.Warn("sandboxes have no outbound network", "reason", err)
	}
	return n, nil
}

// gateway is the machine's own address in the subnet.
func (n *Network) gateway() netip.Addr { return n.prefix.Addr().Next() }

// Outbound reports whether sandboxes can be connected to more than themselves.
func (n *Network) Outbound() bool { return n.links != nil }

// Describe says in a few words what network sandboxes have.
func (n *Network) Describe() string {
	if n.links == nil {
		return "network: loopback only (" + n.why + ")"
	}
	return fmt.Sprintf("network: private %s, outbound through this machine", n.prefix)
}

// Allocate returns an address that no sandbox has.
func (n *Network) Allocate() (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// The address after the last one: one that was freed a moment ago is not used again at once.
	for ip := n.last.Next(); ip != n.last; ip = ip.Next() {
		if !n.prefix.Contains(ip) || !n.prefix.Contains(ip.Next()) {
			ip = n.prefix.Addr() // the broadcast address is left out; go on after the network's own
			continue
		}
		if !n.used[ip] {
			n.used[ip], n.last = true, ip
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("every address of %s is used by a sandbox", n.prefix)
}

// Keep marks the address of a sandbox that was taken over.
func (n *Network) Keep(address string) error {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[ip] = true
	if !n.prefix.Contains(ip) {
		return ErrForeign
	}
	return nil
}

// Free gives an address back.
func (n *Network) Free(address string) {
	if ip, err := netip.ParseAddr(address); err == nil && ip != n.gateway() {
		n.mu.Lock()
		delete(n.used, ip)
		n.mu.Unlock()
	}
}

// Attach connects the sandbox whose first process is pid.
func (n *Network) Attach(pod string, pid int, address string) error {
	if n.links == nil {
		return nil
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	return n.links.attach(pod, pid, ip)
}

// Detach removes a sandbox's interface. It is no error if there is none.
func (n *Network) Detach(pod string) error {
	if n.links == nil {
		return nil
	}
	return n.links.detach(pod)
}

// Leftovers removes the interfaces of all sandboxes but those to keep.
func (n *Network) Leftovers(keep map[string]bool) error {
	if n.links == nil {
		return nil
	}
	return n.links.leftovers(keep)
}

// Close removes everything from the machine.
func (n *Network) Close() error {
	if n.links == nil {
		return nil
	}
	return n.links.close()
}
