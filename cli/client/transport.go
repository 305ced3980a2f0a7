package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"navix.sh/agentbox/cli/clierr"
)

// errTimeout is the cause of a request that took longer than Options.Timeout.
var errTimeout = errors.New("request timed out")

// NewTransport returns the transport of a client: proxies of the environment, and the
// certificate authorities of o in addition to the system's.
func NewTransport(o Options) (http.RoundTripper, error) {
	extra, err := extraAuthorities(o)
	if err != nil {
		return nil, err
	}
	plain := newTransport()
	if len(extra) == 0 {
		return plain, nil
	}
	return &byScheme{plain: plain, secure: sync.OnceValue(func() *http.Transport {
		secure := newTransport()
		secure.TLSClientConfig.RootCAs = poolWith(extra)
		return secure
	})}, nil
}

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() // proxies from the environment, HTTP/2
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.MaxIdleConnsPerHost = 8
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	return t
}

// byScheme loads the system's certificates, which takes tens of milliseconds, only
// when something is asked over TLS.
type byScheme struct {
	plain  *http.Transport
	secure func() *http.Transport
	used   atomic.Bool // secure was
}

func (t *byScheme) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		t.used.Store(true)
		return t.secure().RoundTrip(r)
	}
	return t.plain.RoundTrip(r)
}

// CloseIdleConnections serves http.Client.
func (t *byScheme) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	if t.used.Load() {
		t.secure().CloseIdleConnections()
	}
}

// extraAuthorities reads SSL_CERT_FILE and the CA file. Go itself ignores the variable
// on macOS and Windows, and on Linux lets it replace the system's roots; here it adds.
func extraAuthorities(o Options) ([][]byte, error) {
	var extra [][]byte
	for _, s := range []struct{ path, from string }{
		{o.Getenv("SSL_CERT_FILE"), "environment SSL_CERT_FILE"}, {o.CAFile, "--ca-file"},
	} {
		if s.path == "" {
			continue
		}
		data, err := os.ReadFile(s.path)
		if err != nil {
			return nil, clierr.New(clierr.InvalidValue, "the certificate file (%s) cannot be read: %v", s.from, err).Because(err)
		}
		if block, _ := pem.Decode(data); block == nil || block.Type != "CERTIFICATE" {
			return nil, clierr.New(clierr.InvalidValue, "%s (%s) holds no certificate in PEM form", s.path, s.from)
		}
		extra = append(extra, data)
	}
	return extra, nil
}

func poolWith(extra [][]byte) *x509.CertPool {
	pool := systemRoots()
	for _, data := range extra {
		pool.AppendCertsFromPEM(data)
	}
	return pool
}

func systemRoots() *x509.CertPool {
	if saved, ok := os.LookupEnv("SSL_CERT_FILE"); ok {
		// The standard library loads the system's pool once per process and would read the variable then.
		_ = os.Unsetenv("SSL_CERT_FILE")
		defer func() { _ = os.Setenv("SSL_CERT_FILE", saved) }()
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return x509.NewCertPool()
	}
	return pool
}

func isCertificate(err error) bool {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var verify *tls.CertificateVerificationError
	return errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &host) || errors.As(err, &verify)
}

// checkRedirect follows redirects only where the key may go and the request stays
// what it was: the same host, never from https to http, and never a write that
// would become a read.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	refuse := func(why string) error {
		return clierr.New(clierr.BadResponse, "%s answers with a redirect to %s, %s", first.URL.Host, next.URL.Host+next.URL.Path, why).
			Hint("is the address right? A login page in front of the API looks like this", "abx context show")
	}
	switch {
	case len(via) >= 5:
		return refuse("and redirects go on without end")
	case hostname(next.URL) != hostname(first.URL):
		return refuse("another host, which must not get the key")
	case first.URL.Scheme == "https" && next.URL.Scheme != "https":
		return refuse("which is not encrypted")
	case next.Method != first.Method:
		return refuse("which would drop what is being written")
	}
	return nil
}
