package users_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/internal/usertest"
	"navix.sh/agentbox/envd/users"
)

func TestActHasTheRightsOfTheUser(t *testing.T) {
	user := usertest.Nobody(t)
	dir := usertest.Dir(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, mine := filepath.Join(dir, "link"), filepath.Join(dir, "mine")
	err := user.Act(func() error {
		return errors.Join(os.Symlink(secret, link), os.WriteFile(mine, nil, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(mine)
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); int(stat.Uid) != user.UID || int(stat.Gid) != user.GID {
		t.Errorf("the file belongs to %d:%d, want %d:%d", stat.Uid, stat.Gid, user.UID, user.GID)
	}
	for _, path := range []string{secret, link} {
		err := user.Act(func() error {
			_, err := os.ReadFile(path)
			return err
		})
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("reading %s: %v", path, err)
		}
	}
	if err := user.Act(func() error { return os.Chown(mine, 0, 0) }); !errors.Is(err, os.ErrPermission) {
		t.Errorf("giving a file away: %v", err)
	}
}

func TestActLeavesNoTrace(t *testing.T) {
	user := usertest.Nobody(t)
	groups, err := unix.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			_ = user.Act(func() error {
				if unix.Geteuid() != user.UID || unix.Getegid() != user.GID {
					t.Error("the thread did not become the user")
				}
				return nil
			})
			if now, err := unix.Getgroups(); unix.Geteuid() != 0 || unix.Getegid() != os.Getgid() || err != nil || len(now) != len(groups) {
				t.Error("another goroutine has the user's rights")
			}
		})
	}
	all.Wait()
}

func BenchmarkAct(b *testing.B) {
	user := usertest.Nobody(b)
	for b.Loop() {
		_ = user.Act(func() error { return nil })
	}
}

func TestLookupAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs an ordinary user: root may act as anybody")
	}
	if _, err := users.Lookup("root"); !errors.Is(err, users.ErrUnknown) || !errors.Is(err, users.ErrNotPermitted) {
		t.Errorf("got %v", err)
	}
}
