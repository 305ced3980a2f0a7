package network

import (
	"os"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

const (
	forwardFile = "/proc/sys/net/ipv4/ip_forward"
	// forwardingTable stands as long as IP forwarding is on because of an agent. It is shared by all agents of the
	// machine, and keeps the machine from forwarding anything but their sandboxes' traffic.
	forwardingTable = tablePrefix + "forwarding"
)

// startForwarding switches IP forwarding on unless the machine forwards already.
func startForwarding() error {
	current, err := os.ReadFile(forwardFile)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(current)) != "0" {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	after := nftables.ChainPriorityRef(*nftables.ChainPriorityFilter + 10)
	forward := newTable(c, forwardingTable)("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, after)
	forward(bridges(expr.MetaKeyIIFNAME), verdict(expr.VerdictAccept))
	forward(bridges(expr.MetaKeyOIFNAME), verdict(expr.VerdictAccept))
	forward(verdict(expr.VerdictDrop))
	if err := c.Flush(); err != nil {
		return err
	}
	return os.WriteFile(forwardFile, []byte("1"), 0)
}

// stopForwarding switches forwarding off again when the last agent of the machine leaves.
func stopForwarding() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTables()
	if err != nil {
		return err
	}
	switched := false
	for _, t := range tables {
		if t.Name == forwardingTable {
			switched = true
		} else if strings.HasPrefix(t.Name, tablePrefix) {
			return nil
		}
	}
	if !switched {
		return nil
	}
	if err := os.WriteFile(forwardFile, []byte("0"), 0); err != nil {
		return err
	}
	return removeTable(forwardingTable)
}

// bridges matches the bridge of any agent: a name that is not padded is compared as a prefix.
func bridges(key expr.MetaKey) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(bridgePrefix)}}
}
