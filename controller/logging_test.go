package controller

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// TestBodiesAreNotLogged: client-go writes bodies at verbosity 8 and above.
func TestBodiesAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	log, err := newLogger(Settings{LogLevel: "debug", LogFormat: "text"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	library := logr.FromSlogHandler(quiet{log.Handler()})
	library.V(4).Info("cache is in step")
	for v := 5; v < 11; v++ {
		if library.V(v).Enabled() {
			t.Errorf("verbosity %d is on", v)
		}
		library.V(v).Info("Response Body", "body", "secret")
	}
	if got := out.String(); !strings.Contains(got, "in step") || strings.Contains(got, "secret") {
		t.Error(got)
	}
}
