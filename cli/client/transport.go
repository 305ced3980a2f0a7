package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"navix.sh/agentbox/cli/clierr"
)

// errTimeout is the cause of a request that took longer than Options.Timeout.
var errTimeout = errors.New("request timed out")

// NewTransport returns the transport of a client: proxies of the environment, and the
// certificate authorities of o.
func NewTransport(o Options) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone() // proxies from the environment, HTTP/2
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.MaxIdleConnsPerHost = 8
	roots, err := rootCAs(o)
	if err != nil {
		return nil, err
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return t, nil
}

// rootCAs returns the system's roots with SSL_CERT_FILE and the CA file added; nil,
// which is the platform's own verification, when there is nothing to add. Go itself
// ignores SSL_CERT_FILE on macOS and Windows, and on Linux lets it replace the
// system's roots.
func rootCAs(o Options) (*x509.CertPool, error) {
	type source struct{ path, from string }
	var sources []source
	if path := o.Getenv("SSL_CERT_FILE"); path != "" {
		sources = append(sources, source{path, "environment SSL_CERT_FILE"})
	}
	if o.CAFile != "" {
		sources = append(sources, source{o.CAFile, "--ca-file"})
	}
	if len(sources) == 0 {
		return nil, nil
	}
	pool := systemRoots()
	for _, s := range sources {
		pem, err := os.ReadFile(s.path)
		if err != nil {
			return nil, clierr.New(clierr.InvalidValue, "the certificate file (%s) cannot be read: %v", s.from, err).Because(err)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, clierr.New(clierr.InvalidValue, "%s (%s) holds no certificate in PEM form", s.path, s.from)
		}
	}
	return pool, nil
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
