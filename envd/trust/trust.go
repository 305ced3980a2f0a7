// Package trust makes programs in the sandbox trust the CA that the platform delivers.
package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrMalformed says that a bundle is not a series of PEM certificates.
var ErrMalformed = errors.New("not a series of PEM certificates")

// systemBundles are where distributions keep their roots; the first that exists is extended.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// Install writes the system's roots and bundle to file and returns the variables that point the usual programs there.
// An empty bundle removes the file and returns nothing. /etc is left alone, so that the next sandbox finds it clean.
func Install(file, bundle string) (map[string]string, error) {
	if bundle == "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		return nil, nil
	}
	if err := check([]byte(bundle)); err != nil {
		return nil, err
	}
	var joined bytes.Buffer
	for _, path := range systemBundles {
		if roots, err := os.ReadFile(path); err == nil {
			joined.Write(bytes.TrimRight(roots, "\n"))
			joined.WriteByte('\n')
			break
		}
	}
	joined.WriteString(bundle)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, joined.Bytes(), 0o644); err != nil {
		return nil, err
	}
	env := map[string]string{}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"} {
		env[name] = file
	}
	return env, nil
}

func check(bundle []byte) error {
	count := 0
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("%w: it holds a %s", ErrMalformed, block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		count, bundle = count+1, rest
	}
	if count == 0 || len(bytes.TrimSpace(bundle)) > 0 {
		return ErrMalformed
	}
	return nil
}
