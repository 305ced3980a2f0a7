package v1alpha1

import (
	"encoding/json"
	"testing"
)

// A frozen spec that only says replicas must not grow an empty Pod when it is written back.
func TestEmptyTemplateIsLeftOut(t *testing.T) {
	b, err := json.Marshal(SandboxPoolSpec{Replicas: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b), `{"replicas":2}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
