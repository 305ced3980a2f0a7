// Package apiservertest starts the embedded Kubernetes API for tests: the real thing, with the platform's CRDs, in a
// directory of its own.
package apiservertest

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"

	"navix.sh/agentbox/controller/embedded/apiserver"
)

// StartForTest starts an API server and returns an administrator's configuration for it. The server is stopped when
// the test ends. One serves a whole test package well: start it in the first test that needs it, or use Start in
// TestMain.
func StartForTest(t testing.TB) *rest.Config {
	t.Helper()
	s, err := apiserver.Start(context.Background(), apiserver.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s.Config
}
