package gateway

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificateCheck is how often a certificate file is looked at for a newer one.
const certificateCheck = time.Minute

// protocols are offered under TLS, best first.
var protocols = []string{"h2", "http/1.1"}

// CertificateFiles returns a TLS configuration that serves a certificate from PEM files and takes up a renewed one
// without a restart. A renewed one that cannot be read leaves the one before in place.
func CertificateFiles(certFile, keyFile string) (*tls.Config, error) {
	f := &certificateFiles{cert: certFile, key: keyFile, now: time.Now}
	if err := f.load(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetCertificate: f.get}, nil
}

type certificateFiles struct {
	cert, key string
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	stamp   time.Time
	checked time.Time
}

func (f *certificateFiles) load() error {
	info, err := os.Stat(f.cert)
	if err != nil {
		return fmt.Errorf("TLS certificate: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("TLS certificate %s with key %s: %w; both are PEM files and belong together", f.cert, f.key, err)
	}
	f.current, f.stamp, f.checked = &pair, info.ModTime(), f.now()
	return nil
}

func (f *certificateFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now().Sub(f.checked) >= certificateCheck {
		f.checked = f.now()
		if info, err := os.Stat(f.cert); err == nil && !info.ModTime().Equal(f.stamp) {
			_ = f.load()
		}
	}
	return f.current, nil
}

// renewing serves a certificate of an own authority and issues the next one in good time.
type renewing struct {
	authority *authority
	domain    string

	mu      sync.Mutex
	current *tls.Certificate
}

func (r *renewing) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Until(r.current.Leaf.NotAfter) < renewBefore {
		next, err := r.authority.issue(r.domain)
		if err != nil {
			return r.current, nil // the one in use is still good for a while
		}
		r.current = next
	}
	return r.current, nil
}
