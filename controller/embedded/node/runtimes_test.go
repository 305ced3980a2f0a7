package node

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestUnusableRuntime: an agent does not start with a runtime that is not there, and says which are.
func TestUnusableRuntime(t *testing.T) {
	binaries := bin(t)
	t.Setenv("PATH", "/absent")
	for name, says := range map[string]string{"runsc": "not on the PATH of the controller (/absent)", "kata": "not one of runsc, runc, crun"} {
		_, err := Start(t.Context(), Options{Config: &rest.Config{}, DataDir: t.TempDir(), BinDir: binaries, Runtime: name})
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "namespaces") {
			t.Errorf("%s: the error is %v, want one with %q", name, err, says)
		}
	}
}
