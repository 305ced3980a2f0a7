package image

import (
	"os"
	"syscall"
	"testing"
)

func owner(t *testing.T, path string) [2]uint32 {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	s := st.Sys().(*syscall.Stat_t)
	return [2]uint32{s.Uid, s.Gid}
}
