package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSelfSignedHosts reaches a sandbox by host name over TLS, with HTTP/1.1 and HTTP/2, trusting only the authority.
func TestSelfSignedHosts(t *testing.T) {
	dir := t.TempDir()
	self, err := NewSelfSigned(dir, "e2b.localhost")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(self.Instructions(), self.AuthorityFile) {
		t.Errorf("instructions without the file: %s", self.Instructions())
	}
	f := newFixture(t, "e2b.localhost")
	f.sandbox("iabc", 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(f.gateway, nil)
	go func() { _ = server.Serve(tls.NewListener(l, self.Config)) }()
	t.Cleanup(func() { _ = server.Close() })

	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		client := &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool(t, self.AuthorityFile)},
			ForceAttemptHTTP2: proto == "HTTP/2.0",
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
			},
		}
		if proto == "HTTP/1.1" {
			client.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		response, err := (&http.Client{Transport: client}).Get("https://8080-iabc.e2b.localhost/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		client.CloseIdleConnections()
		if err != nil || response.Proto != proto || string(body) != "8080-iabc.e2b.localhost" {
			t.Errorf("%s: %s %q %v", proto, response.Proto, body, err)
		}
	}
}

func TestSelfSignedIsKept(t *testing.T) {
	dir := t.TempDir()
	first, err := NewSelfSigned(dir, "box.test")
	if err != nil {
		t.Fatal(err)
	}
	before := read(t, first.AuthorityFile)
	if info, err := os.Stat(filepath.Join(dir, authorityKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v %v", info, err)
	}
	if _, err := NewSelfSigned(dir, "box.test"); err != nil || read(t, first.AuthorityFile) != before {
		t.Errorf("a second start made another authority: %v", err)
	}
	if _, err := NewSelfSigned(dir, "other.test"); err != nil || read(t, first.AuthorityFile) == before {
		t.Errorf("an authority for box.test was kept for other.test: %v", err)
	}
	if err := os.WriteFile(first.AuthorityFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewSelfSigned(dir, "other.test"); err == nil || !strings.Contains(err.Error(), "remove ca.crt") {
		t.Errorf("a broken authority: %v", err)
	}
	if _, err := NewSelfSigned(t.TempDir(), "localhost"); err == nil {
		t.Error("a domain with one label was accepted")
	}
}

// TestAuthorityIsConstrained holds the authority to the names it is for.
func TestAuthorityIsConstrained(t *testing.T) {
	dir := t.TempDir()
	self, err := NewSelfSigned(dir, "box.test")
	if err != nil {
		t.Fatal(err)
	}
	a, err := loadOrMakeAuthority(dir, "box.test")
	if err != nil {
		t.Fatal(err)
	}
	forged, err := a.issue("bank.test")
	if err != nil {
		t.Fatal(err)
	}
	roots := pool(t, self.AuthorityFile)
	if _, err := forged.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "www.bank.test"}); err == nil {
		t.Error("the authority vouched for a name that is not below its domain")
	}
	good, err := a.issue("box.test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := good.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "80-i.box.test"}); err != nil {
		t.Error(err)
	}
}

func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	if _, err := CertificateFiles(certFile, keyFile); err == nil {
		t.Error("missing files were accepted")
	}
	if _, err := makeAuthority(certFile, keyFile, "a.test"); err != nil {
		t.Fatal(err)
	}
	clock := time.Now()
	f := &certificateFiles{cert: certFile, key: keyFile, now: func() time.Time { return clock }}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	serve := func() string {
		c, err := f.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(c.Certificate[0])
	}
	first := serve()
	if _, err := makeAuthority(certFile, keyFile, "b.test"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(certFile, clock.Add(time.Hour), clock.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if serve() != first {
		t.Error("the files were read again at once")
	}
	clock = clock.Add(certificateCheck)
	second := serve()
	if second == first {
		t.Error("a renewed certificate was not taken up")
	}
	if err := os.WriteFile(certFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(certificateCheck)
	if serve() != second {
		t.Error("a broken renewal replaced a good certificate")
	}
}

func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	block, _ := pem.Decode([]byte(read(t, file)))
	if block == nil {
		t.Fatalf("%s holds no certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AddCert(cert)
	return p
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
