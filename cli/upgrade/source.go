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
	"io/fs"
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
	key, err := releaseKey(getenv("AGBX_CLI_PUBLIC_KEY"))
	if err != nil {
		return Source{}, err
	}
	return Source{base: strings.TrimRight(base, "/"), key: key, http: &http.Client{Transport: transport, Timeout: requestTimeout}}, nil
}

// releaseKey reads the key from the PEM file at path, or the one that is built in when path is empty.
func releaseKey(path string) (*ecdsa.PublicKey, error) {
	if path != "" {
		wrong := func(err error) error {
			return clierr.New(clierr.InvalidValue, "AGBX_CLI_PUBLIC_KEY=%s: %v", path, err).Because(err).
				Hint("it names the PEM file of the release's public key, which begins with -----BEGIN PUBLIC KEY-----",
					"without it abx takes the key that its release carries")
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			var at *fs.PathError
			if errors.As(err, &at) {
				err = at.Err // the message names the file already
			}
			return nil, wrong(err)
		}
		key, err := parseKey(raw)
		if err != nil {
			return nil, wrong(err)
		}
		return key, nil
	}
	if PublicKey == "" {
		return nil, clierr.New(clierr.NotConfigured, "this abx carries no release key, so nothing it downloads could be verified").
			Hint("name the key's PEM file: AGBX_CLI_PUBLIC_KEY=release.pem abx upgrade", "or install a release with its own install.sh")
	}
	raw, err := base64.StdEncoding.DecodeString(PublicKey)
	var key *ecdsa.PublicKey
	if err == nil {
		key, err = parseKey(raw)
	}
	if err != nil {
		return nil, clierr.New(clierr.Internal, "the built-in release key is damaged: %v", err).Because(err).
			Hint("install a release with its own install.sh")
	}
	return key, nil
}

func parseKey(raw []byte) (*ecdsa.PublicKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("it holds no PEM block")
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
	if err != nil && clierr.From(err).Code == clierr.NotFound {
		return nil, clierr.New(clierr.BadResponse, "the release at %s is not signed: it has no SHA256SUMS.sig", r.base).Because(err).
			Hint("ask whoever publishes it for a signed one (make release with AGBX_RELEASE_SIGNING_KEY)",
				"the old abx is untouched; its install.sh installs it unverified with AGBX_INSECURE_SKIP_SIGNATURE=1")
	}
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
