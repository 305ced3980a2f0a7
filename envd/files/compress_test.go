package files

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/agentbox/envd/internal/usertest"
	"navix.sh/agentbox/envd/state"
)

// pieces records how an answer is handed on: each write may become a chunk of its own.
type pieces struct {
	*httptest.ResponseRecorder
	writes int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.writes++
	return p.ResponseRecorder.Write(b)
}

// A client that takes gzip (fetch always says so) must not get a large file in thousands of small pieces, nor wait for
// the compression of what does not shrink.
func TestDownloadOfLargeFiles(t *testing.T) {
	f := serve(t, state.Settings{})
	dir := usertest.Dir(t)
	random := make([]byte, 2<<20)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for i := 0; text.Len() < 4<<20; i++ {
		fmt.Fprintln(&text, i)
	}
	startsLikeText := append(bytes.Repeat([]byte("text "), sampleSize/5+1), random...)
	for _, test := range []struct {
		name, accept, want string
		data               []byte
	}{
		{"random", "gzip, deflate", "", random},
		{"random where identity is refused", "gzip, identity;q=0", "gzip", random},
		{"random where nothing else is taken", "gzip, *;q=0", "gzip", random},
		{"random of one block", "gzip", "gzip", random[:sampleSize]},
		{"text", "gzip, deflate", "gzip", text.Bytes()},
		{"text before random", "gzip, deflate", "gzip", startsLikeText},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(dir, "file")
			if err := os.WriteFile(path, test.data, 0o644); err != nil {
				t.Fatal(err)
			}
			req := httptest.NewRequest("GET", "/files?"+url.Values{"path": {path}, "username": {f.user}}.Encode(), nil)
			req.Header.Set("Accept-Encoding", test.accept)
			res := &pieces{ResponseRecorder: httptest.NewRecorder()}
			f.mux.ServeHTTP(res, req)

			if got := res.Header().Get("Content-Encoding"); got != test.want {
				t.Errorf("encoding %q, want %q", got, test.want)
			}
			if got := res.Header().Get("Vary"); got != "Accept-Encoding" {
				t.Errorf("Vary %q: the encoding hangs on what the client takes", got)
			}
			if least := 32 << 10; res.writes > res.Body.Len()/least+2 {
				t.Errorf("%d bytes in %d pieces", res.Body.Len(), res.writes)
			}
			body := io.Reader(res.Body)
			if test.want == "gzip" {
				unpacked, err := gzip.NewReader(body)
				if err != nil {
					t.Fatal(err)
				}
				body = unpacked
			} else if got := res.Header().Get("Content-Length"); got != fmt.Sprint(len(test.data)) {
				t.Errorf("length %q", got)
			}
			if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, test.data) {
				t.Errorf("%d bytes came, %d were stored: %v", len(got), len(test.data), err)
			}
		})
	}
}
