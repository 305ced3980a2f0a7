package runtime_test

import (
	"os"
	"testing"

	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/runtime/runtimetest"
)

func TestMain(m *testing.M) { os.Exit(runtimetest.Main(m)) }

func TestRunsAProgram(t *testing.T) {
	n := runtimetest.New(t)
	t.Log(n.Runtime.Describe())
	p := n.Pod(t)
	out, s := n.Run(t, p, n.Host(t, image.UserName, "id; hostname; ls -la / /home/user; cat /proc/self/status | grep -i -E 'cap|priv|secc'; touch ~/x && ls ~/x; ps aux; ls /dev /sys; mount; exit 3"))
	t.Log(out)
	if s.Code != 3 {
		t.Fatalf("exit code %d, want 3", s.Code)
	}
}
