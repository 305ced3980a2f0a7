package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSave shows that a record is whole after every save, shorter ones too, whatever a save that was cut short has left.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	if s, err := loadState(dir); s != nil || err != nil {
		t.Fatalf("nothing is on record, but got %v, %v", s, err)
	}
	for _, ip := range []string{"10.0.0.1", strings.Repeat("long ", 2000), "10.0.0.2", "10.0.0.3"} {
		if err := (&podState{IP: ip}).save(dir); err != nil {
			t.Fatal(err)
		}
		if s, err := loadState(dir); err != nil || s.IP != ip {
			t.Errorf("saved %.10q, loaded %.10q, %v", ip, s.IP, err)
		}
		if err := os.WriteFile(filepath.Join(dir, stateName+".new"), []byte("{cut short"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{stateName, stateName + ".new"}; !slices.Equal(names, want) {
		t.Errorf("the directory holds %q, want %q", names, want)
	}
}
