package gateway

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Lives of self-made certificates. Clients refuse server certificates that live much longer than a year.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	serverLife    = 365 * 24 * time.Hour
	renewBefore   = 30 * 24 * time.Hour
)

// SelfSigned is TLS for a laptop or CI: an own authority, kept in a directory, and a certificate of it.
type SelfSigned struct {
	Config *tls.Config
	// AuthorityFile is the certificate that a client has to trust.
	AuthorityFile string
	domain        string
}

// NewSelfSigned keeps an authority in dir and issues a certificate for the domain, all names directly below it,
// localhost and the loopback addresses. The authority can vouch for nothing else, so trusting it gives little away.
func NewSelfSigned(dir, domain string) (*SelfSigned, error) {
	domain = normalizeDomain(domain)
	if domain != "" && !strings.Contains(domain, ".") {
		return nil, fmt.Errorf("domain %q has one label, and clients refuse a wildcard certificate for it: use one with two, for instance %q", domain, "e2b.localhost")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("TLS directory: %w", err)
	}
	authority, err := loadOrMakeAuthority(dir, domain)
	if err != nil {
		return nil, err
	}
	server, err := authority.issue(domain)
	if err != nil {
		return nil, err
	}
	issued := &renewing{authority: authority, domain: domain, current: server}
	return &SelfSigned{
		Config:        &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetCertificate: issued.get},
		AuthorityFile: filepath.Join(dir, authorityCertFile),
		domain:        domain,
	}, nil
}

// Instructions are the lines that a person needs to trust the certificate.
func (s *SelfSigned) Instructions() string {
	lines := []string{
		"TLS uses an authority of this platform's own. Clients trust it with:",
		"  export NODE_EXTRA_CA_CERTS=" + s.AuthorityFile + "   # Node.js: the E2B SDK and CLI",
		"  export SSL_CERT_FILE=" + s.AuthorityFile + "         # Python, Go, abx",
		"  curl --cacert " + s.AuthorityFile + " …",
	}
	if s.domain != "" {
		lines = append(lines, "Names below "+s.domain+" must resolve to this machine: *."+s.domain+" in DNS, or a resolver that answers for it.")
	}
	return strings.Join(lines, "\n")
}

const (
	authorityCertFile = "ca.crt"
	authorityKeyFile  = "ca.key"
)

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func loadOrMakeAuthority(dir, domain string) (*authority, error) {
	certFile, keyFile := filepath.Join(dir, authorityCertFile), filepath.Join(dir, authorityKeyFile)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeAuthority(certFile, keyFile, domain)
	case err != nil:
		return nil, fmt.Errorf("TLS authority in %s: %w; remove %s and %s to have a new one made", dir, err, authorityCertFile, authorityKeyFile)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("TLS authority in %s: its key cannot sign; remove %s and %s to have a new one made", dir, authorityCertFile, authorityKeyFile)
	}
	if stale := time.Until(pair.Leaf.NotAfter) < serverLife; stale || !slices.Equal(pair.Leaf.PermittedDNSDomains, namesOf(domain)) {
		return makeAuthority(certFile, keyFile, domain)
	}
	return &authority{cert: pair.Leaf, key: key}, nil
}

// namesOf is what the authority may vouch for.
func namesOf(domain string) []string {
	if domain == "" {
		return []string{"localhost"}
	}
	return []string{"localhost", domain}
}

func makeAuthority(certFile, keyFile, domain string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("TLS authority: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:                serial(),
		Subject:                     pkix.Name{CommonName: "AgentBox local authority", Organization: []string{"AgentBox"}},
		NotBefore:                   now.Add(-time.Hour),
		NotAfter:                    now.Add(authorityLife),
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         namesOf(domain),
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
			{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("TLS authority: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("TLS authority: %w", err)
	}
	if err := writePEM(keyFile, "PRIVATE KEY", keyDER, 0o600); err != nil {
		return nil, err
	}
	if err := writePEM(certFile, "CERTIFICATE", der, 0o644); err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("TLS authority: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// writePEM replaces a file as a whole, so that a crash leaves the old one or the new one.
func writePEM(file, kind string, der []byte, mode fs.FileMode) error {
	temporary := file + ".new"
	if err := os.WriteFile(temporary, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return fmt.Errorf("TLS authority: %w", err)
	}
	if err := os.Rename(temporary, file); err != nil {
		return fmt.Errorf("TLS authority: %w", err)
	}
	return nil
}

// issue makes a server certificate with a key that never leaves the process.
func (a *authority) issue(domain string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "AgentBox", Organization: []string{"AgentBox"}},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(serverLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if domain != "" {
		template.DNSNames = append(template.DNSNames, domain, "*."+domain)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// serial is 127 random bits.
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process when the system has no randomness
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}
