package network

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const tablePrefix = "agentbox-"

func tableName(name string) string { return tablePrefix + name }

// linkLocal is where clouds answer with the machine's credentials.
var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

const dnsPort = 53

// writeRules replaces the agent's table in one transaction.
//
//	input:       from sandboxes to the machine nothing but name service, where the machine's resolver is its own
//	forward:     sandboxes to the world, without link-local addresses; answers back; nothing else into sandboxes
//	postrouting: sandboxes appear as the machine
func (l *links) writeRules() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	chain := newTable(c, tableName(l.name))
	bridge := bridgeName(l.name)
	in, out := iface(expr.MetaKeyIIFNAME, bridge, expr.CmpOpEq), iface(expr.MetaKeyOIFNAME, bridge, expr.CmpOpEq)

	input := chain("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	input(in, established(), verdict(expr.VerdictAccept))
	for _, s := range l.resolver.servers {
		input(in, to(netip.PrefixFrom(s, 32)), dns(), verdict(expr.VerdictAccept))
	}
	input(in, verdict(expr.VerdictDrop))

	forward := chain("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter)
	forward(in, out, verdict(expr.VerdictDrop))
	for _, s := range l.resolver.servers {
		forward(in, to(netip.PrefixFrom(s, 32)), dns(), verdict(expr.VerdictAccept))
	}
	forward(in, to(linkLocal), verdict(expr.VerdictDrop))
	forward(in, version(unix.NFPROTO_IPV4), verdict(expr.VerdictAccept))
	forward(in, verdict(expr.VerdictDrop))
	forward(out, established(), verdict(expr.VerdictAccept))
	forward(out, verdict(expr.VerdictDrop))

	nat := chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	nat(from(l.prefix), iface(expr.MetaKeyOIFNAME, bridge, expr.CmpOpNeq), []expr.Any{&expr.Masq{}})
	return c.Flush()
}

// newTable begins a table that replaces the one of the same name. The result adds a chain to it, whose own result
// adds a rule to that.
func newTable(c *nftables.Conn, name string) func(string, nftables.ChainType, *nftables.ChainHook, *nftables.ChainPriority) func(...[]expr.Any) {
	table := &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
	c.AddTable(table)
	c.DelTable(table)
	c.AddTable(table)
	return func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) func(...[]expr.Any) {
		accept := nftables.ChainPolicyAccept
		chain := c.AddChain(&nftables.Chain{Name: name, Table: table, Type: kind, Hooknum: hook, Priority: priority, Policy: &accept})
		return func(parts ...[]expr.Any) {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(parts...)})
		}
	}
}

func removeTable(name string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.DelTable(&nftables.Table{Name: name, Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

func iface(key expr.MetaKey, name string, op expr.CmpOp) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: padded}}
}

func version(protocol byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
	}
}

// Offsets in an IPv4 header.
const (
	sourceOffset      = 12
	destinationOffset = 16
)

func to(p netip.Prefix) []expr.Any   { return address(p, destinationOffset) }
func from(p netip.Prefix) []expr.Any { return address(p, sourceOffset) }

func address(p netip.Prefix, offset uint32) []expr.Any {
	mask := make([]byte, 4)
	binary.BigEndian.PutUint32(mask, ^uint32(0)<<(32-p.Bits()))
	return append(version(unix.NFPROTO_IPV4),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	)
}

// dns matches the port of name service; both of its transports have it at the same place.
func dns() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(dnsPort)},
	}
}

func established() []expr.Any {
	states := binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: states, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}
