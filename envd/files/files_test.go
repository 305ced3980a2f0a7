package files

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/internal/usertest"
	"navix.sh/agentbox/envd/state"
	"navix.sh/agentbox/envd/users"
)

// fixture serves files as the account that the tests run as, or as nobody.
type fixture struct {
	*testing.T
	mux  *http.ServeMux
	user string
}

func serve(t *testing.T, settings state.Settings) fixture {
	s := state.New(false)
	s.Arm(settings)
	service := New(s)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files", service.Download)
	mux.HandleFunc("POST /files", service.Upload)
	mux.HandleFunc("POST /files/compose", service.Compose)
	return fixture{t, mux, users.Current().Name}
}

func (f fixture) as(user string) fixture { f.user = user; return f }

func (f fixture) get(path string, header ...string) *httptest.ResponseRecorder {
	f.Helper()
	req := httptest.NewRequest("GET", "/files?"+url.Values{"path": {path}, "username": {f.user}}.Encode(), nil)
	return f.do(req, header)
}

func (f fixture) post(path, contentType string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	f.Helper()
	query := url.Values{"username": {f.user}}
	if path != "" {
		query.Set("path", path)
	}
	req := httptest.NewRequest("POST", "/files?"+query.Encode(), body)
	return f.do(req, append([]string{"Content-Type", contentType}, header...))
}

func (f fixture) do(req *http.Request, header []string) *httptest.ResponseRecorder {
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res := httptest.NewRecorder()
	f.mux.ServeHTTP(res, req)
	return res
}

func (f fixture) want(res *httptest.ResponseRecorder, status int, text string) {
	f.Helper()
	if res.Code != status || !strings.Contains(res.Body.String(), text) {
		f.Errorf("got %d %s, want %d with %q", res.Code, res.Body, status, text)
	}
	if res.Code >= 400 {
		var body struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal(res.Body.Bytes(), &body); err != nil || body.Code != status || body.Message == "" {
			f.Errorf("the error body %s has no code and message", res.Body)
		}
	}
}

const raw = "application/octet-stream"

// form builds a multipart body whose file names are written as clients write them.
func form(t *testing.T, files ...string) (contentType string, body *bytes.Buffer) {
	t.Helper()
	body = &bytes.Buffer{}
	w := multipart.NewWriter(body)
	for i := 0; i < len(files); i += 2 {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name="file"; filename="%s"`, files[i])}})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, files[i+1])
	}
	w.Close()
	return w.FormDataContentType(), body
}

func compress(text string) *bytes.Buffer {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return &b
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestUpload(t *testing.T) {
	f := serve(t, state.Settings{})
	dir := usertest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }

	t.Run("raw, with parents, then truncated", func(t *testing.T) {
		f.want(f.post(at("a/b/c.txt"), raw, strings.NewReader("hello")), 200, `"path":"`+at("a/b/c.txt")+`","type":"file"`)
		f.want(f.post(at("a/b/c.txt"), raw, strings.NewReader("x")), 200, `"name":"c.txt"`)
		if got := content(t, at("a/b/c.txt")); got != "x" {
			t.Errorf("content %q", got)
		}
		if info, err := os.Stat(at("a/b/c.txt")); err != nil || info.Mode().Perm()&^0o666 != 0 {
			t.Errorf("mode %v %v", info.Mode(), err)
		}
	})
	t.Run("gzip", func(t *testing.T) {
		f.want(f.post(at("z"), raw, compress("packed"), "Content-Encoding", "gzip"), 200, "")
		if got := content(t, at("z")); got != "packed" {
			t.Errorf("content %q", got)
		}
		f.want(f.post(at("z"), raw, strings.NewReader("plain"), "Content-Encoding", "gzip"), 400, "not gzip")
		f.want(f.post(at("z"), raw, bytes.NewReader(compress("packed and broken off").Bytes()[:20]), "Content-Encoding", "gzip"), 400, "broke off")
		f.want(f.post(at("z"), raw, strings.NewReader("x"), "Content-Encoding", "br"), 400, "supported: [identity, gzip]")
	})
	t.Run("multipart with whole paths", func(t *testing.T) {
		names := []string{"d/one.txt", "two words 100%+.txt", "猫/😀.txt"}
		var parts []string
		for _, name := range names {
			parts = append(parts, at(name), "of "+name)
		}
		contentType, body := form(t, parts...)
		f.want(f.post("", contentType, body), 200, "one.txt")
		for _, name := range names {
			if got := content(t, at(name)); got != "of "+name {
				t.Errorf("%s: %q", name, got)
			}
		}
		contentType, body = form(t, "ignored", "by path")
		f.want(f.post(at("named"), contentType, body), 200, `"name":"named"`)
		contentType, body = form(t, at("same"), "1", at("./same"), "2")
		f.want(f.post("", contentType, body), 400, "multiple files to the same path")
		contentType, body = form(t, "", "x")
		f.want(f.post("", contentType, body), 400, "must name the file")
	})
	t.Run("refusals", func(t *testing.T) {
		f.want(f.post("", raw, strings.NewReader("x")), 400, "path is missing")
		f.want(f.post(at("x"), "text/plain", strings.NewReader("x")), 400, "unsupported Content-Type")
		f.want(f.post(at("x"), "multipart/form-data", strings.NewReader("x")), 400, "no boundary")
		f.want(f.post(at("x"), "multipart/form-data; boundary=b", strings.NewReader("x")), 400, "error parsing multipart form")
		f.want(f.post(dir, raw, strings.NewReader("x")), 400, "path is a directory: "+dir)
		f.want(f.post(at("z/below"), raw, strings.NewReader("x")), 500, "error ensuring directories: path is a file: "+at("z"))
		f.want(f.post(at("nul\x00"), raw, strings.NewReader("x")), 400, "NUL")
		f.want(f.as("no-such-user").post(at("x"), raw, strings.NewReader("x")), 401, "error looking up user 'no-such-user': user: unknown user no-such-user")
	})
}

func TestMetadata(t *testing.T) {
	f := serve(t, state.Settings{})
	path := filepath.Join(usertest.Dir(t), "m")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(path, "user.probe", []byte("x"), 0); err != nil {
		t.Skip("needs a temporary directory with extended attributes: ", err)
	}
	f.want(f.post(path, raw, strings.NewReader("x"), "X-Metadata-Color", "red", "X-Metadata-b", "2"), 200, `"metadata":{"b":"2","color":"red"}`)
	value := make([]byte, 16)
	if n, err := unix.Getxattr(path, "user.e2b.color", value); err != nil || string(value[:n]) != "red" {
		t.Errorf("attribute %q %v", value[:max(n, 0)], err)
	}
	f.want(f.post(path, raw, strings.NewReader("x")), 200, "")
	if _, err := unix.Getxattr(path, "user.e2b.color", value); err != unix.ENODATA {
		t.Errorf("an upload without metadata must clear it: %v", err)
	}
	if _, err := unix.Getxattr(path, "user.probe", value); err != nil {
		t.Errorf("a foreign attribute was touched: %v", err)
	}
	f.want(f.post(path, raw, strings.NewReader("x"), "X-Metadata-k", "é"), 400, "printable ASCII")
	f.want(f.post(path, raw, strings.NewReader("x"), "X-Metadata-"+strings.Repeat("k", 247), "v"), 400, "1 to 246")
	f.want(f.post(path, raw, strings.NewReader("x"), "X-Metadata-k", strings.Repeat("v", 4096)), 400, "may have 4096")
}

func TestDownload(t *testing.T) {
	f := serve(t, state.Settings{})
	dir := usertest.Dir(t)
	path := filepath.Join(dir, "page 猫\n.html")
	if err := os.WriteFile(path, []byte("0123456789"), 0o644); err != nil {
		t.Fatal(err)
	}
	res := f.get(path)
	f.want(res, 200, "0123456789")
	if got := res.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/html") {
		t.Errorf("type %s", got)
	}
	if got := res.Header().Get("Content-Disposition"); got != "inline; filename*=utf-8''page%20%E7%8C%AB%0A.html" {
		t.Errorf("disposition %s", got)
	}
	res = f.get(path, "Accept-Encoding", "gzip")
	if res.Header().Get("Content-Encoding") != "gzip" || res.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("header %v", res.Header())
	}
	unpacked, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(unpacked); err != nil || string(text) != "0123456789" {
		t.Errorf("%q %v", text, err)
	}
	res = f.get(path, "Accept-Encoding", "gzip", "Range", "bytes=2-4")
	f.want(res, 206, "234")
	if res.Header().Get("Content-Encoding") != "" {
		t.Error("a range must be of the file itself")
	}
	if res := f.get(path, "Range", "bytes=99-"); res.Code != 416 {
		t.Errorf("a range behind the end: %d", res.Code)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if res := f.get(empty, "Range", "bytes=-5"); res.Code != 200 || res.Header().Get("Content-Range") != "" {
		t.Errorf("a part of nothing: %d %v", res.Code, res.Header())
	}
	f.want(f.get(path, "Accept-Encoding", "identity;q=0, br"), 406, "no acceptable encoding found, supported: [identity, gzip]")
	f.want(f.get(path, "Accept-Encoding", "identity;q=0, gzip", "Range", "bytes=0-1"), 406, "no acceptable encoding")
	f.want(f.get(path, "If-Modified-Since", res.Header().Get("Last-Modified")), 304, "")
	f.want(f.get(dir), 400, "path '"+dir+"' is a directory")
	f.want(f.get(filepath.Join(dir, "none")), 404, "path '"+filepath.Join(dir, "none")+"' does not exist")
	f.want(f.get(filepath.Join(path, "below")), 404, "does not exist")
	f.want(f.get("/proc/self/status"), 200, "Pid:")
	f.want(f.get("/proc/self/status", "Range", "bytes=0-4"), 206, "Name:")
	// A file of /sys says that it has a page, which is not what it holds.
	res = f.get("/sys/kernel/fscaps")
	f.want(res, 200, "1\n")
	if got := res.Header().Get("Content-Length"); got != "2" {
		t.Errorf("length %s", got)
	}
	for _, accept := range []string{"identity", "gzip"} {
		f.want(f.get("/proc/self/pagemap", "Accept-Encoding", accept), 400, "does not end within 16 MiB")
	}
	f.want(f.get("/dev/zero"), 400, "not a regular file")

	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	f.want(f.get(fifo), 400, "not a regular file") // and does not wait for a writer
	f.want(f.post(fifo, raw, strings.NewReader("x")), 400, "not a regular file")
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	f.want(f.get(loop), 400, "loop of links")
}

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]string{
		"":                           identityEncoding,
		"gzip":                       gzipEncoding,
		"gzip, deflate, br":          gzipEncoding,
		"GZIP;q=0.5":                 gzipEncoding,
		"gzip;q=0":                   identityEncoding,
		"gzip;q=0.2, identity;q=0.9": identityEncoding,
		"identity":                   identityEncoding,
		"br":                         identityEncoding,
		"*":                          gzipEncoding,
		"*;q=0":                      "",
		"identity;q=0":               "",
		"identity;q=0, *":            gzipEncoding,
		"gzip;q=nonsense, identity":  identityEncoding,
		"gzip;q=2":                   identityEncoding,
		";,;q=1,,gzip ; q = 1":       gzipEncoding,
	} {
		got, err := negotiate(http.Header{"Accept-Encoding": {accept}})
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q %v, want %q", accept, got, err, want)
		}
	}
}

func TestPlantedLinksLeadNowhere(t *testing.T) {
	nobody := usertest.Nobody(t)
	f := serve(t, state.Settings{}).as(nobody.Name)
	dir := usertest.Dir(t)
	kept := filepath.Join(dir, "kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(kept, "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	toFile, toDir := filepath.Join(dir, "to-file"), filepath.Join(dir, "to-dir")
	if err := os.Symlink(secret, toFile); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, toDir); err != nil {
		t.Fatal(err)
	}
	f.want(f.get(toFile), 403, "permission denied")
	f.want(f.get(filepath.Join(toDir, "secret")), 403, "permission denied")
	f.want(f.post(toFile, raw, strings.NewReader("x")), 403, "permission denied")
	f.want(f.post(filepath.Join(toDir, "new/file"), raw, strings.NewReader("x")), 403, "permission denied")
	f.want(f.get("/proc/1/environ"), 403, "permission denied")
	if got := content(t, secret); got != "root's" {
		t.Errorf("the secret is %q", got)
	}
	if entries, _ := os.ReadDir(kept); len(entries) != 1 {
		t.Errorf("something was made behind the link: %v", entries)
	}
	mine := filepath.Join(dir, "new/deep/file")
	f.want(f.post(mine, raw, strings.NewReader("x")), 200, "")
	for path := mine; path != dir; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if int(info.Sys().(*syscall.Stat_t).Uid) != nobody.UID {
			t.Errorf("%s does not belong to the user", path)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Error("a directory that was there before changed its owner")
	}
}

// TestSwappedLinkRace swaps a directory for a link to a closed one while files are written into it.
func TestSwappedLinkRace(t *testing.T) {
	nobody := usertest.Nobody(t)
	f := serve(t, state.Settings{}).as(nobody.Name)
	dir := usertest.Dir(t)
	kept, swapped, spare := filepath.Join(dir, "kept"), filepath.Join(dir, "swapped"), filepath.Join(dir, "spare")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{swapped} {
		if err := os.Mkdir(path, 0o777); err != nil || os.Chmod(path, 0o777) != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(kept, spare); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, swapped, unix.AT_FDCWD, spare, unix.RENAME_EXCHANGE)
			}
		}
	}()
	for i := range 300 {
		res := f.post(filepath.Join(swapped, fmt.Sprintf("sub%d/file", i)), raw, strings.NewReader("x"))
		if res.Code != 200 && res.Code != 403 && res.Code != 404 {
			t.Errorf("got %d %s", res.Code, res.Body)
		}
	}
	close(stop)
	<-stopped
	if entries, err := os.ReadDir(kept); err != nil || len(entries) != 0 {
		t.Errorf("the race was won: %v %v", entries, err)
	}
}

func TestNoSpace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can mount a small file system")
	}
	f := serve(t, state.Settings{})
	dir := usertest.Dir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs the right to mount: ", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	f.want(f.post(filepath.Join(dir, "big"), raw, strings.NewReader(strings.Repeat("x", 1<<20))), 507, "not enough disk space available")
}

func TestSignatureComesBeforeTheBody(t *testing.T) {
	f := serve(t, state.Settings{AccessToken: "secret"})
	body := &unread{}
	f.want(f.post("/x", raw, body), 401, "missing signature query parameter")
	if body.read {
		t.Error("the body was read before access was checked")
	}
}

type unread struct{ read bool }

func (u *unread) Read([]byte) (int, error) { u.read = true; return 0, io.EOF }

func TestCompose(t *testing.T) {
	f := serve(t, state.Settings{})
	dir := usertest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"1", "2", "3"} {
		if err := os.WriteFile(at(name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compose := func(destination string, sources ...string) *httptest.ResponseRecorder {
		body, err := json.Marshal(map[string]any{"source_paths": sources, "destination": destination, "username": f.user})
		if err != nil {
			t.Fatal(err)
		}
		return f.do(httptest.NewRequest("POST", "/files/compose", bytes.NewReader(body)), nil)
	}
	f.want(compose(at("new/all"), at("1"), at("none")), 404, "does not exist")
	f.want(compose(at("new/all"), at("2"), at("1")), 200, `"path":"`+at("new/all")+`"`)
	if got := content(t, at("new/all")); got != "21" {
		t.Errorf("content %q", got)
	}
	if _, err := os.Stat(at("1")); err == nil {
		t.Error("a source is still there")
	}
	f.want(compose(at("3"), at("new/all"), at("3")), 200, "")
	if got := content(t, at("3")); got != "213" {
		t.Errorf("content %q", got)
	}
	f.want(compose(at("x")), 400, "must not be empty")
	f.want(compose(dir, at("3")), 400, "path is a directory")
	f.want(compose(at("endless"), "/proc/self/pagemap"), 400, "does not end within 16 MiB")
	if left, _ := filepath.Glob(at("**/.compose-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDisposition(t *testing.T) {
	for header, want := range map[string]string{
		`form-data; name="file"; filename="bs/a\(1).txt"`:        `bs/a\(1).txt`,
		`form-data; name="file"; filename="..\..\x"`:             `..\..\x`,
		`form-data; name="file"; filename="a\"`:                  `a\`,
		`form-data; name="file"; filename="a\"b\\c"`:             `a"b\c`,
		`form-data; name="file"; filename="a\""`:                 `a"`,
		`form-data; name="file"; filename="a\"; b"`:              `a"; b`,
		`form-data; filename="a; b=c" ; name="file"`:             `a; b=c`,
		`form-data; name="file"; filename="a%22b%0A"`:            `a%22b%0A`,
		`Form-Data; Name=file; FileName=a/b.txt`:                 `a/b.txt`,
		`form-data; name=file; filename*=utf-8''%E7%8C%AB`:       `猫`,
		`form-data; name=file; filename=x; filename*=utf-8''%22`: `"`,
		`form-data; name="file"; filename=" 猫 "`:                 ` 猫 `,
		`form-data; name="file"`:                                 ``,
	} {
		if field, name, err := disposition(header); field != "file" || name != want || err != nil {
			t.Errorf("%s: %q %q %v, want %q", header, field, name, err, want)
		}
	}
	for _, header := range []string{
		"", "attachment; filename=x", `form-data; name="file`, `form-data; name="file" x`, `form-data; name`,
		`form-data; name="a"; name="b"`, `form-data; name=file; filename*=klingon''x`,
	} {
		if field, name, err := disposition(header); err == nil {
			t.Errorf("%s: taken for %q %q", header, field, name)
		}
	}
}

func FuzzDisposition(f *testing.F) {
	for _, header := range []string{
		`form-data; name="file"; filename="a/b.txt"`, `form-data; name=file; filename*=utf-8''%E7%8C%AB`, `form-data; name="file"; filename="猫"`,
		`attachment; filename=x`, `form-data; name="file"; filename="a\"b\\c"`, `form-data; name="`, "", ";;;", `form-data; name="file"; filename="..\..\x"`,
	} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		field, name, err := disposition(header)
		if err != nil && (field != "" || name != "") {
			t.Errorf("%q: an error and %q, %q", header, field, name)
		}
	})
}

func FuzzNegotiate(f *testing.F) {
	for _, accept := range []string{"gzip", "*;q=0", "identity;q=0.1,gzip;q=0.2", "gzip;q=NaN", "gzip;q=1e400"} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		got, err := negotiate(http.Header{"Accept-Encoding": {accept}})
		if (got == "") != (err != nil) {
			t.Errorf("%q: %q %v", accept, got, err)
		}
	})
}
