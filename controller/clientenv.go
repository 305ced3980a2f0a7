package controller

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// clientEnvPath is the file that a shell sources to reach this platform.
func clientEnvPath(dataDir string) string { return filepath.Join(dataDir, "client.env") }

// writeClientEnv writes client.env whole or not at all, readable by its owner only: it holds a key.
func writeClientEnv(s Settings, endpoint, key, kubeconfig string) error {
	dataDir := s.DataDir
	lines := []string{
		"AGENTBOX_ENDPOINT=" + shellQuote(endpoint),
		adminKeyName + "=" + shellQuote(key),
		"E2B_API_URL=" + shellQuote(endpoint+"/e2b"),
		"E2B_SANDBOX_URL=" + shellQuote(endpoint),
		"E2B_API_KEY=" + shellQuote(strings.Replace(key, "agbx_", "e2b_", 1)),
	}
	if s.Domain != "" {
		// Some SDK features address sandboxes by host name only.
		lines = append(lines, "E2B_DOMAIN="+shellQuote(publicDomain(s, endpoint)))
	}
	if s.TLSSelfSigned {
		lines = append(lines, "NODE_EXTRA_CA_CERTS="+shellQuote(authorityFile(s)))
	}
	if kubeconfig != "" {
		lines = append(lines, "KUBECONFIG="+shellQuote(kubeconfig))
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("export " + l + "\n")
	}
	tmp, err := os.CreateTemp(dataDir, ".client.env.*") // created 0600
	if err != nil {
		return fmt.Errorf("write client.env: %w", err)
	}
	defer os.Remove(tmp.Name())
	if _, err = tmp.WriteString(b.String()); err == nil {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), clientEnvPath(dataDir))
	}
	if err != nil {
		return fmt.Errorf("write client.env: %w", err)
	}
	return nil
}

// readClientEnv reads what an earlier start wrote; a missing or foreign file reads as empty.
func readClientEnv(dataDir string) map[string]string {
	out := map[string]string{}
	f, err := os.Open(clientEnvPath(dataDir))
	if err != nil {
		return out
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		name, value, ok := strings.Cut(strings.TrimPrefix(sc.Text(), "export "), "=")
		if ok {
			out[name] = strings.ReplaceAll(strings.Trim(value, "'"), `'\''`, "'")
		}
	}
	return out
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// publicEndpoint is the address that clients on this machine use.
func publicEndpoint(s Settings, scheme string, addr net.Addr) string {
	if s.PublicURL != "" {
		return strings.TrimRight(s.PublicURL, "/")
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// publicDomain is --domain as clients write it: with the port of the platform's address, unless it names one itself or
// the scheme implies it. SDKs put what they are told behind `<port>-<id>.` and nothing behind that.
func publicDomain(s Settings, endpoint string) string {
	u, err := url.Parse(endpoint)
	if s.Domain == "" || strings.Contains(s.Domain, ":") || err != nil || u.Port() == "" ||
		u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80" {
		return s.Domain
	}
	return net.JoinHostPort(s.Domain, u.Port())
}

// publicHost is the host name of --public-url, empty without one.
func publicHost(s Settings) string {
	u, err := url.Parse(s.PublicURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// publicURL tells which address a client reached the platform at.
func publicURL(s Settings) func(*http.Request) string {
	return func(r *http.Request) string {
		if s.PublicURL != "" {
			return strings.TrimRight(s.PublicURL, "/")
		}
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		return scheme + "://" + r.Host
	}
}
