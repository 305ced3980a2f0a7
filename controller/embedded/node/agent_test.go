package node

import (
	"testing"
)

func TestPodRuns(t *testing.T) {
	b := newBed(t)
	b.create(serverPod("one"))
	pod := b.await("one", "ready", ready)
	t.Logf("%+v", pod.Status)
	t.Log(b.shell(pod.Status.PodIP, "id; hostname; cat /etc/hosts /etc/resolv.conf; ip addr; ip route"))
	if out := b.shell(pod.Status.PodIP, "hostname"); out != "one\n" {
		t.Errorf("the host name is %q", out)
	}
}
