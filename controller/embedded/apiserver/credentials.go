package apiserver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	certificateLife = 10 * 365 * 24 * time.Hour
	// renewBefore is how much life a certificate needs to be used once more.
	renewBefore = 30 * 24 * time.Hour
)

// credentials are what the API server proves itself with, and what its administrator proves himself with.
type credentials struct {
	token string
	// ca, cert and key are PEM. The CA's own key existed only while it signed the certificate.
	ca, cert, key []byte
}

// loadCredentials reads the credentials in dir, and mints those that are missing or about to expire.
func loadCredentials(dir string) (*credentials, error) {
	c := &credentials{}
	tokenFile := filepath.Join(dir, "token")
	token, err := os.ReadFile(tokenFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b := make([]byte, 32)
		_, _ = rand.Read(b)
		c.token = hex.EncodeToString(b)
		if err := writePrivate(tokenFile, []byte(c.token+"\n")); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("read the administrator's token: %w", err)
	default:
		if c.token = strings.TrimSpace(string(token)); len(c.token) != 64 {
			return nil, fmt.Errorf("%s does not hold a token of 64 hexadecimal digits; remove it to have a new one made", tokenFile)
		}
	}
	return c, c.loadCertificate(dir)
}

func (c *credentials) loadCertificate(dir string) error {
	files := map[string]*[]byte{"ca.crt": &c.ca, "server.crt": &c.cert, "server.key": &c.key}
	complete := true
	for name, into := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read a certificate: %w", err)
		}
		*into = b
		complete = complete && err == nil
	}
	if complete && certificateUsable(c.ca, c.cert, c.key, time.Now()) {
		return nil
	}
	if err := c.mintCertificate(time.Now()); err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	for name, from := range files {
		if err := writePrivate(filepath.Join(dir, name), *from); err != nil {
			return err
		}
	}
	return nil
}

func certificateUsable(ca, cert, key []byte, now time.Time) bool {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return false
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost", CurrentTime: now.Add(renewBefore)})
	return err == nil
}

func (c *credentials) mintCertificate(now time.Time) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "agentbox-ca"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + 1), Subject: pkix.Name{CommonName: "agentbox-apiserver"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	c.cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafDER})
	c.key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	return nil
}

// writeKubeconfig writes a kubeconfig for the server at address (host:port).
func (c *credentials) writeKubeconfig(path, address string) error {
	const name = "agentbox"
	b, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: "https://" + address, CertificateAuthorityData: c.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: c.token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: "default"}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
		return nil // a start on a full disk needs no room for it
	}
	return writePrivate(path, b)
}

// lastAddress returns where the server of an earlier start listened, so that copies of its kubeconfig stay good.
func lastAddress(kubeconfig string) string {
	c, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil || c.Clusters["agentbox"] == nil {
		return ""
	}
	return strings.TrimPrefix(c.Clusters["agentbox"].Server, "https://")
}

// writePrivate writes a file that only this user can read, whole or not at all.
func writePrivate(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
