package controller

import (
	"crypto/tls"
	"fmt"
	"io"
	"path/filepath"

	"navix.sh/agentbox/controller/gateway"
)

// tlsConfig is how the port is served: nil means without TLS. What a person must do to trust a self-made certificate
// is printed to out.
func tlsConfig(s Settings, out io.Writer) (*tls.Config, error) {
	switch {
	case s.TLSCert != "":
		return gateway.CertificateFiles(s.TLSCert, s.TLSKey)
	case s.TLSSelfSigned:
		own, err := gateway.NewSelfSigned(tlsDir(s), s.Domain)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(out, own.Instructions())
		return own.Config, nil
	}
	return nil, nil
}

func scheme(s Settings) string {
	if s.TLSCert != "" || s.TLSSelfSigned {
		return "https"
	}
	return "http"
}

func tlsDir(s Settings) string { return filepath.Join(s.DataDir, "tls") }

// authorityFile is the certificate of the self-made authority, which clients have to trust.
func authorityFile(s Settings) string { return filepath.Join(tlsDir(s), "ca.crt") }
