package openapi_test

import (
	"context"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"navix.sh/agentbox/openapi"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Native)
	if err != nil {
		t.Fatalf("native.yaml does not load: %v", err)
	}
	return doc
}

// TestDocumentIsValid validates the document itself and every example in it
// against the schema it stands beside.
func TestDocumentIsValid(t *testing.T) {
	doc := load(t)
	if err := doc.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatalf("native.yaml is not valid: %v", err)
	}
}
