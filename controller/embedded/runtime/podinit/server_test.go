package podinit

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/controller/embedded/runtime/launch"
)

// dialServer returns the agent's end of a connection to a server.
func dialServer(t *testing.T, s *server) *launch.Conn {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*launch.Conn
	for i, fd := range pair {
		if ends[i], err = launch.NewConn(fd); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { ends[0].Close() })
	go s.serve(ends[1])
	return ends[0]
}

// TestListWaitsForStarts shows that an agent learns of the containers that the one before it was starting when it died.
func TestListWaitsForStarts(t *testing.T) {
	s := newServer()
	files, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	fd := int(files.Fd())
	receive := func(c *launch.Conn) (r launch.Reply) {
		t.Helper()
		if _, err := c.Receive(&r); err != nil {
			t.Fatal(err)
		}
		return r
	}

	s.starting.Lock() // the start goes no further than to its volumes
	old := dialServer(t, s)
	start := launch.Request{Seq: 1, Op: launch.OpStart, ID: "a", MemoryVolumes: []launch.MemoryVolume{{Name: "no/such"}}}
	if err := old.Send(start, fd, fd, fd); err != nil {
		t.Fatal(err)
	}
	if err := old.Send(launch.Request{Seq: 2, Op: "none"}); err != nil {
		t.Fatal(err)
	}
	if r := receive(old); r.Seq != 2 { // by now the start was read
		t.Fatalf("the answer is %+v", r)
	}
	next := dialServer(t, s)
	if err := next.Send(launch.Request{Seq: 3, Op: launch.OpList}); err != nil {
		t.Fatal(err)
	}
	if err := next.Send(launch.Request{Seq: 4, Op: "none"}); err != nil {
		t.Fatal(err)
	}
	if r := receive(next); r.Seq != 4 {
		t.Fatalf("the answer before the start has ended is %+v", r)
	}
	s.starting.Unlock()
	if r := receive(old); r.Seq != 1 || r.Error == "" {
		t.Errorf("the start is answered with %+v", r)
	}
	if r := receive(next); r.Seq != 3 {
		t.Errorf("the list is %+v", r)
	}
}
