package upgrade

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"navix.sh/agentbox/cli/clierr"
)

const (
	// requestTimeout bounds one download.
	requestTimeout = 120 * time.Second
	// maxDownload bounds what is read into memory; binaries are about 15 MB.
	maxDownload = 256 << 20
)

// Source is where releases come from and who must have signed them.
type Source struct {
	base string
	key  *ecdsa.PublicKey
	http *http.Client
}

// NewSource reads the address and the key from the environment, else from what the release builder put in.
// transport carries the requests (proxies, certificate authorities); nil takes the default one.
func NewSource(getenv func(string) string, transport http.RoundTripper) (Source, error) {
	base := getenv("AGBX_CLI_BASE")
	if base == "" {
		base = Base
	}
	if base == "" {
		return Source{}, clierr.New(clierr.NotConfigured, "this abx does not know where releases are served").
			Hint("name the address: AGBX_CLI_BASE=https://… abx upgrade")
	}
	encoded := []byte(nil)
	if path := getenv("AGBX_CLI_PUBLIC_KEY"); path != "" {
		raw, err := os.ReadFile(path)
		if err != nil {
			return Source{}, clierr.New(clierr.InvalidValue, "AGBX_CLI_PUBLIC_KEY: %v", err).Because(err)
		}
		encoded = raw
	} else if PublicKey != "" {
		raw, err := base64.StdEncoding.DecodeString(PublicKey)
		if err != nil {
			return Source{}, clierr.New(clierr.Internal, "the built-in release key is damaged").Because(err)
		}
		encoded = raw
	}
	if len(encoded) == 0 {
		return Source{}, clierr.New(clierr.NotConfigured, "this abx carries no release key, so nothing it downloads could be verified").
			Hint("name the key's PEM file: AGBX_CLI_PUBLIC_KEY=release.pem abx upgrade", "or install a release with its own install.sh")
	}
	key, err := parseKey(encoded)
	if err != nil {
		return Source{}, clierr.New(clierr.InvalidValue, "the release key: %v", err).Because(err)
	}
	return Source{base: strings.TrimRight(base, "/"), key: key, http: &http.Client{Transport: transport, Timeout: requestTimeout}}, nil
}

func parseKey(raw []byte) (*ecdsa.PublicKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("want an ECDSA key, got %T", parsed)
	}
	return key, nil
}

// release is one release whose list of checksums has been verified.
type release struct {
	source  Source
	base    string
	version string
	sums    map[string]string // file name to hex SHA-256
}

// open finds a release and checks who made it. version empty takes the latest.
func (s Source) open(ctx context.Context, version string) (*release, error) {
	r := &release{source: s, base: s.base}
	if version != "" {
		r.base = strings.TrimSuffix(s.base, "/latest") + "/" + version
	}
	list, err := s.get(ctx, r.base+"/SHA256SUMS")
	if err != nil {
		return nil, err
	}
	signature, err := s.get(ctx, r.base+"/SHA256SUMS.sig")
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(list)
	if !ecdsa.VerifyASN1(s.key, digest[:], signature) {
		return nil, untrusted("the signature of %s/SHA256SUMS is not by the release key", r.base)
	}
	if r.sums, err = parseSums(list); err != nil {
		return nil, untrusted("%s/SHA256SUMS: %v", r.base, err)
	}
	raw, err := r.download(ctx, "VERSION")
	if err != nil {
		return nil, err
	}
	r.version = strings.TrimSpace(string(raw))
	if !semver.IsValid(r.version) {
		return nil, untrusted("the release at %s calls itself %q, which is not a version", r.base, r.version)
	}
	if version != "" && r.version != version {
		return nil, untrusted("asked for %s, but %s holds %s", version, r.base, r.version)
	}
	return r, nil
}

// parseSums reads the output format of sha256sum.
func parseSums(raw []byte) (map[string]string, error) {
	sums := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		digest, name, ok := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		name = strings.TrimLeft(name, " *")
		if decoded, err := hex.DecodeString(digest); !ok || err != nil || len(decoded) != sha256.Size || name == "" {
			return nil, fmt.Errorf("malformed line %q", strings.TrimSpace(line))
		}
		if _, twice := sums[name]; twice {
			return nil, fmt.Errorf("%s is listed twice", name)
		}
		sums[name] = digest
	}
	return sums, nil
}

// download fetches a file of the release and holds it to its checksum.
func (r *release) download(ctx context.Context, name string) ([]byte, error) {
	want, ok := r.sums[name]
	if !ok {
		return nil, clierr.New(clierr.Unsupported, "the release %s has no %s", r.base, name).
			Hint("there is no build for this platform; the old abx is untouched")
	}
	raw, err := r.source.get(ctx, r.base+"/"+name)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(raw)
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(digest[:])), []byte(want)) != 1 {
		return nil, untrusted("checksum mismatch for %s/%s: want %s, got %x", r.base, name, want, digest)
	}
	return raw, nil
}

func untrusted(format string, args ...any) error {
	return clierr.New(clierr.BadResponse, format, args...).Hint("the release is damaged or was tampered with; the old abx is untouched")
}

func (s Source) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, clierr.New(clierr.InvalidValue, "the release address %q: %v", s.base, err).Because(err)
	}
	answer, err := s.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, clierr.New(clierr.Interrupted, "interrupted").Because(err)
		}
		return nil, clierr.New(clierr.Unreachable, "cannot download %s: %v", url, err).Because(err).
			Hint("is this machine online, and AGBX_CLI_BASE right?", "the old abx is untouched")
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		code := clierr.ServerError
		if answer.StatusCode == http.StatusNotFound {
			code = clierr.NotFound
		}
		return nil, clierr.New(code, "%s: the server answered %s", url, answer.Status).
			Hint("is there such a release? abx upgrade --check looks for the latest", "the old abx is untouched")
	}
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxDownload+1))
	if err == nil && len(raw) > maxDownload {
		err = fmt.Errorf("larger than %d MiB", maxDownload>>20)
	}
	if err == nil && answer.ContentLength >= 0 && int64(len(raw)) != answer.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, clierr.New(clierr.Unreachable, "the download of %s broke off: %v", url, err).Because(err).Hint("try again; the old abx is untouched")
	}
	return raw, nil
}
