// Package installtest runs install.sh as a person would, in every shell of this machine, against a signed release on
// the loopback interface.
package installtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const version = "v1.2.3"

// program stands in for abx: the installer cannot tell. Its one act is `skills install --dir DIR`, which a file of somebody
// else's prevents.
const program = `#!/bin/sh
case "$1 $2 $3" in
"skills install --dir")
	if [ -e "$4/not-ours" ]; then echo "error: $4/not-ours is not a skill of abx" >&2; exit 7; fi
	mkdir -p "$4/abx-common" && printf 'kind: "agentbox-skill"\n' >"$4/abx-common/SKILL.md" ;;
*) echo "abx ` + version + `: unexpected: $*" >&2; exit 2 ;;
esac
`

// release is what a server offers; a test spoils it before the installer runs.
type release struct {
	files map[string][]byte
	// half names a file whose download breaks off.
	half string
	key  *ecdsa.PrivateKey
	// pem is the path of the public key.
	pem    string
	url    string
	server *httptest.Server
	mu     sync.Mutex
	paths  []string
}

// asked are the paths that were requested.
func (r *release) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.paths)
}

func newRelease(t *testing.T) *release {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	r := &release{key: key, pem: filepath.Join(t.TempDir(), "release.pem")}
	write(t, r.pem, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), 0o644)
	r.files = map[string][]byte{"VERSION": []byte(version + "\n"), abxFile(): []byte(program)}
	for _, name := range []string{"controller", "envd", "sandbox-init"} {
		r.files[name+"-linux-"+runtime.GOARCH] = []byte("#!/bin/sh\necho " + name + "\n")
	}
	r.sign()
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.server.Close)
	r.url = "http://" + r.server.Listener.Addr().String() + "/cli/latest"
	return r
}

// open starts the server; nobody changes the release afterwards.
func (r *release) open() { r.server.Start() }

func abxFile() string { return "abx-" + runtime.GOOS + "-" + runtime.GOARCH }

// sign lists the files and signs the list.
func (r *release) sign() {
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		if !strings.HasPrefix(name, "SHA256SUMS") {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(r.files[name]), name)
		}
	}
	r.signList(sums.String())
}

func (r *release) signList(sums string) {
	r.files["SHA256SUMS"] = []byte(sums)
	digest := sha256.Sum256(r.files["SHA256SUMS"])
	signature, err := ecdsa.SignASN1(rand.Reader, r.key, digest[:])
	if err != nil {
		panic(err) // the key is good: it was made here
	}
	r.files["SHA256SUMS.sig"] = signature
}

// serve answers below /cli/latest and /cli/<version>.
func (r *release) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.paths = append(r.paths, q.URL.Path)
	r.mu.Unlock()
	dir, name := filepath.Split(q.URL.Path)
	body, ok := r.files[name]
	if !ok || dir != "/cli/latest/" && dir != "/cli/"+version+"/" {
		http.NotFound(w, q)
		return
	}
	if name == r.half {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)+100))
		_, _ = w.Write(body)
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}
