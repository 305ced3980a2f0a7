package filesystem

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/internal/usertest"
	spec "navix.sh/agentbox/envd/spec/filesystem"
	"navix.sh/agentbox/envd/spec/filesystem/filesystemconnect"
	"navix.sh/agentbox/envd/state"
	"navix.sh/agentbox/envd/users"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs the service over HTTP and returns a client that acts as the account of the tests.
func serve(t *testing.T, settings state.Settings) filesystemconnect.FilesystemClient {
	t.Helper()
	if settings.DefaultUser == "" {
		settings.DefaultUser = users.Current().Name
	}
	s := state.New(false)
	s.Arm(settings)
	service := NewService(s)
	t.Cleanup(service.Close)
	_, handler := filesystemconnect.NewFilesystemHandler(service)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return filesystemconnect.NewFilesystemClient(server.Client(), server.URL, connect.WithProtoJSON())
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func want(t *testing.T, err error, code connect.Code, text string) {
	t.Helper()
	if connect.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, code, text)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestStat(t *testing.T) {
	client := serve(t, state.Settings{})
	dir := usertest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	stat := func(path string) (*spec.EntryInfo, error) {
		res, err := client.Stat(within(t), connect.NewRequest(&spec.StatRequest{Path: path}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetEntry(), nil
	}
	write(t, at("file"), "12345")
	for link, to := range map[string]string{"link": "file", "todir": ".", "broken": "none", "loop": "loop"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	entry, err := stat(at("file"))
	if err != nil {
		t.Fatal(err)
	}
	if entry.GetName() != "file" || entry.GetPath() != at("file") || entry.GetSize() != 5 || entry.GetMode() != 0o644 ||
		entry.GetPermissions() != "-rw-r--r--" || entry.GetType() != spec.FileType_FILE_TYPE_FILE ||
		entry.GetOwner() != users.Current().Name || entry.GetGroup() == "" || entry.SymlinkTarget != nil ||
		time.Since(entry.GetModifiedTime().AsTime()) > time.Hour {
		t.Errorf("file: %v", entry)
	}
	for name, test := range map[string]struct {
		kind   spec.FileType
		target string
	}{
		"link":   {spec.FileType_FILE_TYPE_FILE, at("file")},
		"todir":  {spec.FileType_FILE_TYPE_DIRECTORY, dir},
		"broken": {spec.FileType_FILE_TYPE_UNSPECIFIED, "none"},
	} {
		entry, err := stat(at(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if entry.GetType() != test.kind || entry.GetSymlinkTarget() != test.target || !strings.HasPrefix(entry.GetPermissions(), "L") {
			t.Errorf("%s: %v", name, entry)
		}
	}
	_, err = stat(at("none"))
	want(t, err, connect.CodeNotFound, "file not found")
	_, err = stat(at("file/below"))
	want(t, err, connect.CodeNotFound, "file not found")
	_, err = stat(at("loop/x"))
	want(t, err, connect.CodeFailedPrecondition, "links")
	_, err = stat("a\x00b")
	want(t, err, connect.CodeInvalidArgument, "NUL")
	req := connect.NewRequest(&spec.StatRequest{Path: "/"})
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("no-such-user:")))
	_, err = client.Stat(within(t), req)
	want(t, err, connect.CodeUnauthenticated, "invalid username: 'no-such-user'")
}

func TestStatMetadata(t *testing.T) {
	path := filepath.Join(usertest.Dir(t), "f")
	write(t, path, "")
	if err := unix.Setxattr(path, "user.e2b.color", []byte("red"), 0); err != nil {
		t.Skip("needs a temporary directory with extended attributes: ", err)
	}
	_ = unix.Setxattr(path, "user.other", []byte("x"), 0)
	res, err := serve(t, state.Settings{}).Stat(within(t), connect.NewRequest(&spec.StatRequest{Path: path}))
	if err != nil || len(res.Msg.GetEntry().GetMetadata()) != 1 || res.Msg.GetEntry().GetMetadata()["color"] != "red" {
		t.Errorf("%v %v", res, err)
	}
}

func TestMakeMoveRemove(t *testing.T) {
	client := serve(t, state.Settings{})
	ctx := within(t)
	dir := usertest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	make := func(path string) error {
		_, err := client.MakeDir(ctx, connect.NewRequest(&spec.MakeDirRequest{Path: path}))
		return err
	}
	move := func(from, to string) error {
		_, err := client.Move(ctx, connect.NewRequest(&spec.MoveRequest{Source: from, Destination: to}))
		return err
	}
	remove := func(path string) error {
		_, err := client.Remove(ctx, connect.NewRequest(&spec.RemoveRequest{Path: path}))
		return err
	}
	if err := make(at("a/b/c")); err != nil {
		t.Fatal(err)
	}
	want(t, make(at("a/b")), connect.CodeAlreadyExists, "directory already exists")
	write(t, at("file"), "x")
	want(t, make(at("file")), connect.CodeInvalidArgument, "not a directory")
	want(t, make(at("file/below")), connect.CodeInvalidArgument, "not a directory")

	res, err := client.Move(ctx, connect.NewRequest(&spec.MoveRequest{Source: at("file"), Destination: at("new/place/file")}))
	if err != nil || res.Msg.GetEntry().GetPath() != at("new/place/file") {
		t.Errorf("%v %v", res, err)
	}
	want(t, move(at("none"), at("x")), connect.CodeNotFound, "source file not found")
	write(t, at("other"), "y")
	if err := move(at("other"), at("new/place/file")); err != nil {
		t.Errorf("replacing a file: %v", err)
	}
	want(t, move(at("a"), at("a/b/inside")), connect.CodeInvalidArgument, "")
	want(t, move(at("a"), at("new")), connect.CodeAlreadyExists, "")

	if err := remove(at("new")); err != nil {
		t.Error(err)
	}
	if err := remove(at("new")); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
	write(t, at("g"), "")
	if err := remove(at("g/below")); err != nil {
		t.Errorf("removing below a file: %v", err)
	}
	if _, err := os.Stat(at("new")); err == nil {
		t.Error("not removed")
	}
}

func TestListDir(t *testing.T) {
	client := serve(t, state.Settings{})
	dir := usertest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.MkdirAll(at("d1/d2/d3"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, at("d1/f"), "")
	write(t, at("f"), "")
	if err := os.Symlink("d1", at("link")); err != nil {
		t.Fatal(err)
	}
	list := func(path string, depth uint32) ([]string, error) {
		res, err := client.ListDir(within(t), connect.NewRequest(&spec.ListDirRequest{Path: path, Depth: depth}))
		if err != nil {
			return nil, err
		}
		var found []string
		for _, entry := range res.Msg.GetEntries() {
			found = append(found, strings.TrimPrefix(entry.GetPath(), dir+"/"))
		}
		return found, nil
	}
	for depth, expected := range map[uint32][]string{
		0:       {"d1", "f", "link"},
		1:       {"d1", "f", "link"},
		2:       {"d1", "d1/d2", "d1/f", "f", "link"},
		1 << 31: {"d1", "d1/d2", "d1/d2/d3", "d1/f", "f", "link"},
	} {
		if got, err := list(dir, depth); err != nil || !slices.Equal(got, expected) {
			t.Errorf("depth %d: %v %v", depth, got, err)
		}
	}
	if got, err := list(at("link"), 1); err != nil || !slices.Equal(got, []string{"link/d2", "link/f"}) {
		t.Errorf("through a link: %v %v", got, err)
	}
	_, err := list(at("none"), 1)
	want(t, err, connect.CodeNotFound, "path not found")
	_, err = list(at("f"), 1)
	want(t, err, connect.CodeInvalidArgument, "path is not a directory")
}

func TestRightsAreTheUsers(t *testing.T) {
	nobody := usertest.Nobody(t)
	client := serve(t, state.Settings{DefaultUser: nobody.Name})
	ctx := within(t)
	dir := usertest.Dir(t)
	kept := filepath.Join(dir, "kept")
	if err := os.MkdirAll(filepath.Join(kept, "sub"), 0o755); err != nil || os.Chmod(kept, 0o700) != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(kept, link); err != nil {
		t.Fatal(err)
	}
	_, err := client.Stat(ctx, connect.NewRequest(&spec.StatRequest{Path: filepath.Join(link, "sub")}))
	want(t, err, connect.CodePermissionDenied, "")
	_, err = client.ListDir(ctx, connect.NewRequest(&spec.ListDirRequest{Path: link}))
	want(t, err, connect.CodePermissionDenied, "")
	_, err = client.MakeDir(ctx, connect.NewRequest(&spec.MakeDirRequest{Path: filepath.Join(link, "new")}))
	want(t, err, connect.CodePermissionDenied, "")
	_, err = client.Remove(ctx, connect.NewRequest(&spec.RemoveRequest{Path: kept}))
	want(t, err, connect.CodePermissionDenied, "")
	_, err = client.Move(ctx, connect.NewRequest(&spec.MoveRequest{Source: filepath.Join(link, "sub"), Destination: filepath.Join(dir, "x")}))
	want(t, err, connect.CodePermissionDenied, "")
	_, err = client.CreateWatcher(ctx, connect.NewRequest(&spec.CreateWatcherRequest{Path: link}))
	want(t, err, connect.CodePermissionDenied, "")
	if _, err := client.MakeDir(ctx, connect.NewRequest(&spec.MakeDirRequest{Path: filepath.Join(dir, "mine")})); err != nil {
		t.Error(err)
	}
	res, err := client.Stat(ctx, connect.NewRequest(&spec.StatRequest{Path: filepath.Join(dir, "mine")}))
	if err != nil || res.Msg.GetEntry().GetOwner() != nobody.Name {
		t.Errorf("%v %v", res, err)
	}
}

func TestWatchDir(t *testing.T) {
	client := serve(t, state.Settings{})
	ctx, leave := context.WithCancel(within(t))
	defer leave()
	dir := usertest.Dir(t)
	stream, err := client.WatchDir(ctx, connect.NewRequest(&spec.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatalf("the first message is %v, %v", stream.Msg(), stream.Err())
	}
	file := filepath.Join(dir, "sub/deep/file")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for !seen["sub/deep/file EVENT_TYPE_REMOVE"] && stream.Receive() {
		event := stream.Msg().GetFilesystem()
		seen[event.GetName()+" "+event.GetType().String()] = true
		if event.GetName() == "sub/deep" { // once a directory was reported, nothing in it is missed
			write(t, file, "x")
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		if event.GetType() == spec.EventType_EVENT_TYPE_REMOVE && event.Entry != nil {
			t.Errorf("a removal has an entry: %v", event)
		}
		if event.GetName() == "sub" && event.GetEntry().GetPath() != filepath.Join(dir, "sub") {
			t.Errorf("no entry: %v", event)
		}
	}
	for _, name := range []string{"sub", "sub/deep", "sub/deep/file"} {
		if !seen[name+" EVENT_TYPE_CREATE"] {
			t.Errorf("no creation of %s in %v", name, seen)
		}
	}
}

func TestPolledWatcher(t *testing.T) {
	client := serve(t, state.Settings{})
	ctx := within(t)
	dir := usertest.Dir(t)
	created, err := client.CreateWatcher(ctx, connect.NewRequest(&spec.CreateWatcherRequest{Path: dir}))
	if err != nil {
		t.Fatal(err)
	}
	id := created.Msg.GetWatcherId()
	write(t, filepath.Join(dir, "f"), "x")
	var names []string
	for !slices.Contains(names, "f EVENT_TYPE_WRITE") && ctx.Err() == nil {
		res, err := client.GetWatcherEvents(ctx, connect.NewRequest(&spec.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range res.Msg.GetEvents() {
			names = append(names, event.GetName()+" "+event.GetType().String())
		}
	}
	if len(names) == 0 || names[0] != "f EVENT_TYPE_CREATE" {
		t.Errorf("events %v", names)
	}
	if _, err := client.RemoveWatcher(ctx, connect.NewRequest(&spec.RemoveWatcherRequest{WatcherId: id})); err != nil {
		t.Error(err)
	}
	_, err = client.GetWatcherEvents(ctx, connect.NewRequest(&spec.GetWatcherEventsRequest{WatcherId: id}))
	want(t, err, connect.CodeNotFound, id)
	_, err = client.RemoveWatcher(ctx, connect.NewRequest(&spec.RemoveWatcherRequest{WatcherId: id}))
	want(t, err, connect.CodeNotFound, id)
}

func TestWatchRefusals(t *testing.T) {
	client := serve(t, state.Settings{})
	file := filepath.Join(usertest.Dir(t), "f")
	write(t, file, "")
	_, err := client.CreateWatcher(within(t), connect.NewRequest(&spec.CreateWatcherRequest{Path: file}))
	want(t, err, connect.CodeInvalidArgument, "path is not a directory")
	_, err = client.CreateWatcher(within(t), connect.NewRequest(&spec.CreateWatcherRequest{Path: file + "x"}))
	want(t, err, connect.CodeNotFound, "path not found")
	stream, err := client.WatchDir(within(t), connect.NewRequest(&spec.WatchDirRequest{Path: file}))
	if err == nil {
		defer stream.Close()
		for stream.Receive() {
		}
		err = stream.Err()
	}
	want(t, err, connect.CodeInvalidArgument, "path is not a directory")
}

func TestWatchEndsWithItsDeadline(t *testing.T) {
	client := serve(t, state.Settings{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	stream, err := client.WatchDir(ctx, connect.NewRequest(&spec.WatchDirRequest{Path: usertest.Dir(t)}))
	if err == nil {
		defer stream.Close()
		for stream.Receive() {
		}
		err = stream.Err()
	}
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
