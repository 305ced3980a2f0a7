package controller

import (
	"net"
	"os"
	"strings"
	"testing"
)

// The SDKs take the domain that they are told as it is, so it has to carry the port that clients come in at.
func TestPublicDomain(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		port     int
		want     string
	}{
		{Settings{}, 18491, ""},
		{Settings{Domain: "e2b.test"}, 18491, "e2b.test:18491"},
		{Settings{Domain: "e2b.test", TLSSelfSigned: true}, 18491, "e2b.test:18491"},
		{Settings{Domain: "e2b.test", TLSCert: "c"}, 443, "e2b.test"},
		{Settings{Domain: "e2b.test"}, 443, "e2b.test:443"},
		{Settings{Domain: "e2b.test"}, 80, "e2b.test"},
		{Settings{Domain: "e2b.test:8443"}, 18491, "e2b.test:8443"},
		{Settings{Domain: "e2b.test", PublicURL: "https://box.test"}, 18491, "e2b.test"},
		{Settings{Domain: "e2b.test", PublicURL: "https://box.test:8443/"}, 18491, "e2b.test:8443"},
	} {
		addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.port}
		endpoint := publicEndpoint(c.settings, scheme(c.settings), addr)
		if got := publicDomain(c.settings, endpoint); got != c.want {
			t.Errorf("%+v at port %d: %q, want %q", c.settings, c.port, got, c.want)
		}
	}
}

func TestClientEnvHasThePublicDomain(t *testing.T) {
	s := Settings{Domain: "e2b.test", DataDir: t.TempDir()}
	if err := writeClientEnv(s, "http://127.0.0.1:18491", "agbx_0", ""); err != nil {
		t.Fatal(err)
	}
	if got := readClientEnv(s.DataDir)["E2B_DOMAIN"]; got != "e2b.test:18491" {
		t.Error(got)
	}
	if raw, err := os.ReadFile(clientEnvPath(s.DataDir)); err != nil || !strings.Contains(string(raw), "E2B_API_KEY='e2b_0'") {
		t.Errorf("%s %v", raw, err)
	}
}
