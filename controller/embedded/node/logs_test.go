package node

import (
	"bufio"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func testLogs(t *testing.T, b *bed) {
	p := serverPod("logs")
	p.Spec.Containers[0].Command = []string{"sh", "-c", "echo one; echo two >&2; printf 'no end'; read x < /dev/null; exec /mnt/agentbox/envd"}
	b.create(p)
	b.await("logs", "ready", ready)
	read := func(o *corev1.PodLogOptions) string {
		t.Helper()
		r, err := b.agent.Logs(t.Context(), "default", "logs", o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		out, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	all := read(nil)
	for _, want := range []string{"one\n", "two\n", "no endstarting on 127.0.0.1\n"} {
		if !strings.Contains(all, want) {
			t.Errorf("the log %q lacks %q", all, want)
		}
	}
	tail, limit := int64(1), int64(5)
	if got := read(&corev1.PodLogOptions{TailLines: &tail}); got != "no endstarting on 127.0.0.1\n" {
		t.Errorf("the last line is %q", got)
	}
	if got := read(&corev1.PodLogOptions{LimitBytes: &limit}); len(got) != 5 {
		t.Errorf("5 bytes of the log are %q", got)
	}
	if got := read(&corev1.PodLogOptions{Timestamps: true, TailLines: &tail}); len(got) < 40 || got[4] != '-' {
		t.Errorf("with the time the line is %q", got)
	}
	for _, o := range []*corev1.PodLogOptions{{Container: "absent"}, {Previous: true}} {
		if _, err := b.agent.Logs(t.Context(), "default", "logs", o); err == nil {
			t.Errorf("no error for %+v", o)
		}
	}
	if _, err := b.agent.Logs(t.Context(), "default", "absent", nil); err == nil {
		t.Error("no error for a Pod that does not exist")
	}

	// Following sees what is written afterwards, and ends with the container.
	none := int64(0)
	r, err := b.agent.Logs(t.Context(), "default", "logs", &corev1.PodLogOptions{Follow: true, TailLines: &none})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pod := b.await("logs", "ready", ready)
	b.shell(pod.Status.PodIP, "echo later > /proc/1/fd/1")
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); err != nil || line != "later\n" {
		t.Errorf("followed %q, %v", line, err)
	}
	b.setImage("logs", pod.Spec.Containers[0].Image+":again")
	if _, err := io.ReadAll(lines); err != nil {
		t.Errorf("the log does not end with the container: %v", err)
	}
}
