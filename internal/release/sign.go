package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// loadKey reads an ECDSA P-256 private key (PKCS #8 or SEC 1 PEM) and returns it with its public half as PEM.
// ECDSA over P-256 with SHA-256 is what `openssl dgst -verify` checks on every system, LibreSSL's included.
func loadKey(path string) (*ecdsa.PrivateKey, string, error) {
	if path == "" {
		return nil, "", nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, "", fmt.Errorf("%s holds no PEM block", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, "", fmt.Errorf("%s: want an ECDSA P-256 private key: %w", path, err)
		}
		var ok bool
		if key, ok = parsed.(*ecdsa.PrivateKey); !ok {
			return nil, "", fmt.Errorf("%s: want an ECDSA P-256 private key, got %T", path, parsed)
		}
	}
	if key.Curve != elliptic.P256() {
		return nil, "", fmt.Errorf("%s: want curve P-256, got %s", path, key.Curve.Params().Name)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, "", err
	}
	public := strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	return key, public, nil
}

// sign writes path.sig: an ASN.1 ECDSA signature of the file's SHA-256, deterministic (RFC 6979).
func sign(path string, key *ecdsa.PrivateKey) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(raw)
	signature, err := key.Sign(nil, digest[:], sha256Hash)
	if err != nil {
		return err
	}
	return os.WriteFile(path+".sig", signature, 0o644)
}

// writeChecksums writes SHA256SUMS over all files, and <file>.sha256 for each binary.
func writeChecksums(dir string, files []string) error {
	var sums strings.Builder
	for _, name := range files {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		digest := sha256.Sum256(raw)
		line := hex.EncodeToString(digest[:]) + "  " + name + "\n"
		sums.WriteString(line)
		if strings.Count(name, "-") >= 2 && !strings.HasSuffix(name, ".json") {
			if err := os.WriteFile(filepath.Join(dir, name+".sha256"), []byte(line), 0o644); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// writeInstaller copies install.sh with the release's address and key filled in.
func writeInstaller(source, path, base, publicPEM string) error {
	raw, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	text := string(raw)
	for _, fill := range []struct{ name, value string }{{"release_base", base}, {"release_key", publicPEM}} {
		empty := fill.name + "=''\n"
		if strings.Count(text, empty) != 1 {
			return fmt.Errorf("%s lacks the line %s", source, strings.TrimSpace(empty))
		}
		if strings.Contains(fill.value, "'") {
			return fmt.Errorf("%s holds a quote", fill.name)
		}
		text = strings.Replace(text, empty, fill.name+"='"+fill.value+"'\n", 1)
	}
	return os.WriteFile(path, []byte(text), 0o755)
}
