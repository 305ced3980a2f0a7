package command

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"navix.sh/agentbox/envd/internal/usertest"
)

func TestEnvironmentMerge(t *testing.T) {
	d := start(t, []string{"TEMPLATE=t", "BOTH=t", "ALL=t", "ENVD_INIT_TOKEN=secret", "HOME=/wrong"})
	client := d.processes()
	if status, _, body := d.call(t, "POST", "/init", `{"envVars":{"GLOBAL":"g","BOTH":"g","ALL":"g"}}`, "X-Init-Token", "secret"); status != 204 {
		t.Fatalf("init: %d %s", status, body)
	}
	req := shell("env")
	req.Process.Envs = map[string]string{"ALL": "r", "OWN": "r"}
	got := strings.Split(strings.TrimSpace(mustRun(t, client, req).stdout), "\n")
	slices.Sort(got)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ALL=r", "BOTH=g", "E2B_SANDBOX=true", "GLOBAL=g", "HOME=" + me.HomeDir, "LOGNAME=" + me.Username, "OWN=r", "TEMPLATE=t", "USER=" + me.Username}
	if os.Geteuid() == 0 {
		if account, err := user.Lookup("user"); err == nil { // then it is the default
			want[4], want[5], want[8] = "HOME="+account.HomeDir, "LOGNAME=user", "USER=user"
		}
	}
	got = slices.DeleteFunc(got, func(v string) bool {
		return strings.HasPrefix(v, "PWD=") || strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "GORACE=") ||
			strings.HasPrefix(v, "AGENTBOX_COMMAND=")
	})
	if !slices.Equal(got, want) {
		t.Errorf("environment\n%q, want\n%q", got, want)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", d.cmd.Process.Pid))
	if err == nil && bytes.Contains(environ, []byte("secret")) {
		t.Error("the init token can be read in envd's environment")
	}
	if status, _, _ := d.call(t, "POST", "/init", `{"envVars":{"NEW":"n"}}`, "X-Init-Token", "secret"); status != 204 {
		t.Fatal("second init failed")
	}
	if out := mustRun(t, client, shell("env")).stdout; strings.Contains(out, "GLOBAL=") || !strings.Contains(out, "NEW=n") {
		t.Errorf("a second init must replace the variables of the first: %s", out)
	}
}

func TestProcessesRunAsTheUser(t *testing.T) {
	nobody := usertest.Nobody(t)
	client := start(t, nil).processes()
	req := connect.NewRequest(shell("id -u; id -g; pwd; touch /root/planted || echo refused"))
	req.Header().Set("Authorization", basic(nobody.Name))
	o, err := run(within(t), client, req)
	// The home of nobody does not exist, and nobody asked for it.
	if want := fmt.Sprintf("%d\n%d\n/\nrefused\n", nobody.UID, nobody.GID); err != nil || o.stdout != want {
		t.Errorf("got %q %v, want %q", o.stdout, err, want)
	}
}
