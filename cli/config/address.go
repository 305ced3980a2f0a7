package config

import (
	"net/url"
	"strings"

	"navix.sh/agentbox/cli/clierr"
)

// NormalizeAddress brings an address of a deployment into the one form that is
// compared and saved: lower-case scheme and host, no default port, no trailing
// slash, and without the /api/clusters suffix that older releases asked for.
func NormalizeAddress(address string) string {
	address = strings.TrimRight(strings.TrimSpace(address), "/")
	for _, suffix := range []string{"/api/clusters/{cluster}", "/api/clusters"} {
		address = strings.TrimSuffix(address, suffix)
	}
	address = strings.TrimRight(address, "/")
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":443")
	} else {
		u.Host = strings.TrimSuffix(u.Host, ":80")
	}
	return u.String()
}

// CheckAddress refuses what cannot be the address of a deployment; source names
// where it came from.
func CheckAddress(address, source string) error {
	u, err := url.Parse(address)
	bad := ""
	switch {
	case err != nil:
		bad = "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		bad = "needs http:// or https:// in front"
	case u.Hostname() == "":
		bad = "names no host"
	case u.User != nil:
		bad = "must not carry a user name or password; the key goes to --api-key-stdin"
	case u.RawQuery != "" || u.Fragment != "":
		bad = "must not carry a query or a fragment"
	default:
		return nil
	}
	shown := address
	if u != nil && u.User != nil {
		shown = u.Redacted()
	}
	return clierr.New(clierr.InvalidValue, "the address %q (%s) %s", shown, source, bad).
		Hint("an address looks like https://console.example.com/agentbox")
}
